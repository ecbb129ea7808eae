//! Fixed vocabulary: 15 kinds of token, one byte each as stored; the model id is one more.
//!
//! | stored | id | token |
//! |---|---|---|
//! | | 0 | padding |
//! | 0 to 9 | 1 to 10 | the digits |
//! | 10 to 13 | 11 to 14 | `[MIN` `[MAX` `[MED` `[SM` |
//! | 14 | 15 | `]` |
//! | 15 | 16 | out of vocabulary: never stored, kept because the published model reserves it |
//!
//! The 2021 code numbers the tokens in an order that changes from process to process; the order
//! here is fixed.

use tokenizers::models::wordlevel::WordLevel;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{Replace, Sequence};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{NormalizerWrapper, Tokenizer};

use super::evaluate::Operator;

/// Stored byte of the first operator; smaller bytes are digits.
pub const FIRST_OPERATOR: u8 = 10;

/// Stored byte of the closing bracket.
pub const CLOSE: u8 = 14;

/// Texts of the stored bytes 0 to 14.
pub const TOKENS: [&str; 15] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]",
];

/// Number of model ids: padding, the tokens, out of vocabulary.
pub const IDS: usize = 1 + TOKENS.len() + 1;

/// Meaning of a stored byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A digit, 0 to 9.
    Digit(u8),
    /// An operator with its opening bracket.
    Open(Operator),
    /// The closing bracket.
    Close,
}

impl Token {
    /// Returns the token of a stored byte; `None` for a byte that no expression has.
    pub fn new(stored: u8) -> Option<Token> {
        match stored {
            0..FIRST_OPERATOR => Some(Token::Digit(stored)),
            CLOSE => Some(Token::Close),
            _ => Operator::PUBLISHED
                .get(usize::from(stored - FIRST_OPERATOR))
                .map(|&operator| Token::Open(operator)),
        }
    }

    /// Returns the token of a word of published text; `None` for a word that no expression has.
    pub fn parse(word: &str) -> Option<Token> {
        match word {
            "X" => Some(Token::Close),
            "[FIRST" => Some(Token::Open(Operator::First)),
            "[LAST" => Some(Token::Open(Operator::Last)),
            _ => (0..)
                .zip(TOKENS)
                .find(|(_, text)| *text == word)
                .and_then(|(stored, _)| Token::new(stored)),
        }
    }
}

/// Returns the tokenizer of published text: white space separates words, parentheses are dropped,
/// `X` is another spelling of `]`. Its ids are the model's.
///
/// # Errors
/// Only if the `tokenizers` crate refuses this vocabulary, which its tests rule out.
pub fn tokenizer() -> tokenizers::Result<Tokenizer> {
    let padding_and_tokens = ["[PAD]"].into_iter().chain(TOKENS).chain(["[OOV]"]);
    let vocabulary = padding_and_tokens
        .zip(0..)
        .map(|(token, id)| (token.to_owned(), id));
    let model = WordLevel::builder()
        .vocab(vocabulary.collect())
        .unk_token("[OOV]".to_owned())
        .build()?;
    // Matches X as a whole word, not the one in [MAX.
    let rewrite = [(r"[()]", " "), (r"\bX\b", "]")]
        .into_iter()
        .map(|(from, to)| {
            Replace::new(ReplacePattern::Regex(from.to_owned()), to).map(NormalizerWrapper::from)
        })
        .collect::<tokenizers::Result<Vec<_>>>()?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(Sequence::new(rewrite)))
        .map(|_| ())?;
    tokenizer.with_pre_tokenizer(Some(WhitespaceSplit));
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_fixed() {
        let tokenizer = tokenizer().unwrap();
        let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(ids("( ( ( [MAX 2 ) 3 ) ] )"), [12, 3, 4, 15]);
        assert_eq!(
            ids("[MED [SM 0 9 X [MIN 1 5 ] X"),
            [13, 14, 1, 10, 15, 11, 2, 6, 15, 15]
        );
        assert_eq!(ids("[FIRST 10 ]"), [16, 16, 15]);
        assert_eq!(tokenizer.get_vocab_size(true), IDS);
        for (stored, text) in TOKENS.iter().enumerate() {
            assert_eq!(ids(text), [stored as u32 + 1]);
        }
    }

    #[test]
    fn bytes_without_meaning() {
        assert_eq!(Token::new(14), Some(Token::Close));
        assert_eq!(Token::new(13), Some(Token::Open(Operator::Sum)));
        assert!((15..=255).all(|stored| Token::new(stored).is_none()));
    }
}
