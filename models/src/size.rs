//! Sizes as functions of the length L, such as `L/4` or `min(2*sqrt(L), 256)`, so that one setting
//! fits every task.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = atom { ("*" | "/") atom }
//! atom    = number | "L" | name "(" sum { "," sum } ")" | "(" sum ")"
//! name    = sqrt | log2 | min | max
//! ```
//!
//! The value is rounded up to a whole number, and is at least 1.

use crate::{Error, Result};

/// Returns whether `text` is a function of the length, such as `L/4`: it has the word `L`.
#[must_use]
pub fn is_expression(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word == "L")
}

/// Returns the value of `text`, such as `L/4`, for sequences of `length` tokens L. It is rounded
/// up, and at least 1.
///
/// # Errors
/// [`Error::Input`] with the place at which `text` cannot be read; or if parentheses are nested
/// more than 32 deep, or the value is NaN or does not fit a u32.
pub fn evaluate(text: &str, length: usize) -> Result<usize> {
    let mut parser = Parser {
        text,
        at: 0,
        length: length as f64,
        depth: 0,
    };
    let value = parser.sum()?;
    parser.spaces();
    if parser.at < text.len() {
        return Err(parser.wrong("an operator or the end"));
    }
    // Rounding errors of a sum must not add a token.
    let size = (value - 1e-9).ceil().max(1.0);
    if value.is_nan() || size > u32::MAX.into() {
        return Err(Error::Input(format!(
            "{text} is {value} for L = {length}, which is no size"
        )));
    }
    Ok(size as usize)
}

/// The deepest nesting of parentheses.
const DEEPEST: usize = 32;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    length: f64,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Skips `symbol` if it comes next, and returns whether it did.
    fn accept(&mut self, symbol: char) -> bool {
        self.spaces();
        let actual = self.rest().starts_with(symbol);
        self.at += usize::from(actual) * symbol.len_utf8();
        actual
    }

    fn wrong(&self, expected: &str) -> Error {
        Error::Input(format!(
            "{}: expected {expected} at character {}",
            self.text,
            self.at + 1
        ))
    }

    fn sum(&mut self) -> Result<f64> {
        let mut value = self.product()?;
        loop {
            if self.accept('+') {
                value += self.product()?;
            } else if self.accept('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64> {
        let mut value = self.atom()?;
        loop {
            if self.accept('*') {
                value *= self.atom()?;
            } else if self.accept('/') {
                value /= self.atom()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self) -> Result<f64> {
        self.spaces();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
        if let Ok(number) = word.parse::<f64>()
            && number.is_finite()
        {
            self.at += word.len();
            return Ok(number);
        }
        match word {
            "L" => {
                self.at += 1;
                Ok(self.length)
            }
            "" => match self.within_parentheses()?[..] {
                [value] => Ok(value),
                _ => Err(self.wrong("one value in parentheses without a name")),
            },
            name => {
                let (name, length) = (name.to_owned(), name.len());
                let function: fn(f64, f64) -> f64 = match name.as_str() {
                    "sqrt" => |x, _| x.sqrt(),
                    "log2" => |x, _| x.log2(),
                    "min" => f64::min,
                    "max" => f64::max,
                    _ => return Err(self.wrong("a number, L, sqrt, log2, min or max")),
                };
                self.at += length;
                let arguments = self.within_parentheses()?;
                let expected = if name.starts_with('m') { 2 } else { 1 };
                match arguments[..] {
                    [x] if expected == 1 => Ok(function(x, x)),
                    [x, y] if expected == 2 => Ok(function(x, y)),
                    _ => Err(self.wrong(&format!("{expected} in the parentheses of {name}"))),
                }
            }
        }
    }

    /// Reads one value or more between parentheses.
    fn within_parentheses(&mut self) -> Result<Vec<f64>> {
        if !self.accept('(') || self.depth == DEEPEST {
            return Err(self.wrong("a number, L or one pair of parentheses"));
        }
        self.depth += 1;
        let mut values = vec![self.sum()?];
        while self.accept(',') {
            values.push(self.sum()?);
        }
        self.depth -= 1;
        match self.accept(')') {
            true => Ok(values),
            false => Err(self.wrong("a closing parenthesis")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_length() {
        for (text, length, expected) in [
            ("L/4", 1024, 256),
            ("L/3", 10, 4),
            (" min( L / 4 , 256 ) ", 16_384, 256),
            ("2*sqrt(L)", 1024, 64),
            ("log2(L)+1", 1024, 11),
            ("max(L/128, 2)", 64, 2),
            ("(L-24)/(2+3)", 1024, 200),
            ("L/1000", 5, 1),
            ("0.1*L*10", 7, 7),
        ] {
            assert_eq!(evaluate(text, length).unwrap(), expected, "{text}");
            assert!(is_expression(text));
        }
        assert!(!is_expression("256") && !is_expression("LSH") && !is_expression("learned"));
    }

    #[test]
    fn what_is_none_says_where() {
        for text in [
            "L/",
            "L/0",
            "sqrt(L",
            "min(L)",
            "foo(L)",
            "sqrt(0-L)",
            "L L",
            "",
            "L*1e99",
            "(L, 2)",
            "é+L",
        ] {
            let error = evaluate(text, 1024).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let nested = format!("{}L{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(evaluate(&nested, 1).is_err());
        let error = evaluate("L + q", 4).unwrap_err().to_string();
        assert!(error.contains("at character 5"), "{error}");
    }
}
