//! Evaluation of an expression.
//!
//! MIN and MAX of the arguments; MED is the median, for an even number of arguments the mean of the
//! middle two, truncated; SM is the sum modulo 10; FIRST and LAST, which only the original data of
//! 2018 has, are the first and the last argument. Values are digits, so an operator only needs ten
//! counts and the first and last argument.

use super::vocabulary::Token;

/// An operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// The smallest argument.
    Min,
    /// The largest argument.
    Max,
    /// The median, truncated.
    Median,
    /// The sum modulo 10.
    Sum,
    /// The first argument. Not in the arena.
    First,
    /// The last argument. Not in the arena.
    Last,
}

impl Operator {
    /// Operators that the arena uses, in the order of their stored bytes.
    pub const PUBLISHED: [Operator; 4] = [
        Operator::Min,
        Operator::Max,
        Operator::Median,
        Operator::Sum,
    ];
}

/// Arguments of an operator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arguments {
    /// Number of occurrences of each digit.
    counts: [u32; 10],
    first: Option<u8>,
    last: u8,
}

impl Arguments {
    /// Adds one argument, 0 to 9.
    pub fn push(&mut self, value: u8) {
        self.counts[usize::from(value)] += 1;
        self.first.get_or_insert(value);
        self.last = value;
    }

    /// Returns the value of `operator` on the arguments; `None` if there are none.
    pub fn apply(&self, operator: Operator) -> Option<u8> {
        let first = self.first?;
        let total: u32 = self.counts.iter().sum();
        Some(match operator {
            Operator::Min => self.ranked(0),
            Operator::Max => self.ranked(total - 1),
            Operator::Median => (self.ranked((total - 1) / 2) + self.ranked(total / 2)) / 2,
            Operator::Sum => {
                let sum: u64 = (0..)
                    .zip(self.counts)
                    .map(|(digit, count)| digit * u64::from(count))
                    .sum();
                (sum % 10) as u8
            }
            Operator::First => first,
            Operator::Last => self.last,
        })
    }

    /// Returns the argument of this rank in ascending order, counted from 0.
    fn ranked(&self, rank: u32) -> u8 {
        let mut seen = 0;
        for (digit, count) in (0..).zip(self.counts) {
            seen += count;
            if rank < seen {
                return digit;
            }
        }
        9
    }
}

/// Reason why a row is not an expression. Positions count tokens from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There are no tokens.
    #[error("there is no expression")]
    Empty,
    /// A byte or word is not a token.
    #[error("token {position} is unknown")]
    Unknown {
        /// Position of the token.
        position: usize,
    },
    /// A closing bracket has no opening one.
    #[error("token {position} closes a bracket that was not opened")]
    Unopened {
        /// Position of the bracket.
        position: usize,
    },
    /// An operator has no arguments.
    #[error("token {position} closes an operator without arguments")]
    NoArguments {
        /// Position of its closing bracket.
        position: usize,
    },
    /// Tokens follow the end of the expression.
    #[error("the expression is over before token {position}")]
    Trailing {
        /// Position of the first one.
        position: usize,
    },
    /// Brackets are still open at the end.
    #[error("{count} brackets are not closed")]
    Unclosed {
        /// Number of open brackets.
        count: usize,
    },
}

/// Returns the value of an expression, given as stored bytes.
///
/// # Errors
/// The bytes are not exactly one expression.
pub fn evaluate(stored: &[u8]) -> Result<u8, Malformed> {
    walk(stored.iter().map(|&stored| Token::new(stored)), |_| {})
}

/// Returns the value of an expression, given as published: words separated by white space, FIRST
/// and LAST among them. Parentheses are skipped; `X` is another spelling of `]`.
///
/// # Errors
/// The words are not exactly one expression. Positions do not count parentheses.
pub fn evaluate_text(text: &str) -> Result<u8, Malformed> {
    let words = text
        .split_ascii_whitespace()
        .filter(|word| !["(", ")"].contains(word));
    walk(words.map(Token::parse), |_| {})
}

/// A list whose bracket has just closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    /// Position of its operator.
    pub(super) opened: usize,
    /// Position of its closing bracket.
    pub(super) position: usize,
    /// Depth: 1 for the whole expression, one more for each list around it.
    pub(super) depth: usize,
    pub(super) value: u8,
}

/// Returns the value of the expression; calls `closed` for every list when it closes. Nesting costs
/// heap, not stack, so any input is safe.
pub(super) fn walk(
    tokens: impl Iterator<Item = Option<Token>>,
    mut closed: impl FnMut(Closed),
) -> Result<u8, Malformed> {
    let mut open: Vec<(usize, Operator, Arguments)> = Vec::new();
    let mut result = None;
    for (position, token) in tokens.enumerate() {
        if result.is_some() {
            return Err(Malformed::Trailing { position });
        }
        let value = match token.ok_or(Malformed::Unknown { position })? {
            Token::Digit(digit) => digit,
            Token::Open(operator) => {
                open.push((position, operator, Arguments::default()));
                continue;
            }
            Token::Close => {
                let (opened, operator, arguments) =
                    open.pop().ok_or(Malformed::Unopened { position })?;
                let value = arguments
                    .apply(operator)
                    .ok_or(Malformed::NoArguments { position })?;
                closed(Closed {
                    opened,
                    position,
                    depth: open.len() + 1,
                    value,
                });
                value
            }
        };
        match open.last_mut() {
            Some((_, _, arguments)) => arguments.push(value),
            None => result = Some(value),
        }
    }
    match result {
        Some(value) => Ok(value),
        None if open.is_empty() => Err(Malformed::Empty),
        None => Err(Malformed::Unclosed { count: open.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::CLOSE;
    use super::*;

    #[test]
    fn by_hand() {
        for (text, expected) in [
            ("7", 7),
            ("[MAX 2 3 ]", 3),
            ("( ( ( [MAX 2 ) 3 ) X )", 3),
            ("[MIN 4 9 4 ]", 4),
            ("[MED 2 5 ]", 3), // 3.5 truncated
            ("[MED 9 1 5 ]", 5),
            ("[MED 8 1 6 3 ]", 4), // middle two 3 and 6: 4.5
            ("[SM 9 9 9 ]", 7),
            ("[SM 4 6 ]", 0),
            ("[MIN 0 ]", 0),
            ("[FIRST 3 1 2 ]", 3),
            ("[LAST 3 1 [FIRST 2 4 ] ]", 2),
            ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
            ("[SM [MED 1 2 3 ] [MAX 8 [MIN 9 9 ] ] ]", 1),
        ] {
            assert_eq!(evaluate_text(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed() {
        for (text, expected) in [
            ("", Malformed::Empty),
            ("]", Malformed::Unopened { position: 0 }),
            ("[MAX ]", Malformed::NoArguments { position: 1 }),
            ("[MAX 1 ] 2", Malformed::Trailing { position: 3 }),
            ("1 ]", Malformed::Trailing { position: 1 }),
            ("[MAX [MIN 1 ]", Malformed::Unclosed { count: 1 }),
            ("[MAX 1 [AVG", Malformed::Unknown { position: 2 }),
            ("[MAX 1 10 ]", Malformed::Unknown { position: 2 }),
        ] {
            assert_eq!(evaluate_text(text), Err(expected), "{text}");
        }
        assert_eq!(
            evaluate(&[15]),
            Err(Malformed::Unknown { position: 0 }),
            "never stored"
        );
    }

    #[test]
    fn depth_costs_no_stack() {
        let depth = 1_000_000;
        let mut tokens = vec![11; depth]; // [MAX
        tokens.push(5);
        assert_eq!(evaluate(&tokens), Err(Malformed::Unclosed { count: depth }));
        tokens.resize(2 * depth + 1, CLOSE);
        assert_eq!(evaluate(&tokens), Ok(5));
    }
}
