//! Interpretation of a pickle's values: text, numbers, and NumPy's arrays, whose calls depend on
//! the version and protocol.

use std::borrow::Cow;

use super::{Pickle, Value, ValueIndex};
use crate::numpy::{Array, Dtype};

impl Pickle<'_> {
    /// Returns a value of the pickle's dictionary by its key, which may be text or bytes.
    ///
    /// # Errors
    /// A description, if the dictionary has several values of the key.
    pub(crate) fn item(&self, key: &str) -> Result<Option<ValueIndex>, String> {
        let Value::Dictionary(items) = &self.values[self.root] else {
            return Ok(None);
        };
        let named = |name: ValueIndex| self.text(name).as_deref() == Some(key.as_bytes());
        let mut found = items.iter().filter(|(name, _)| named(*name));
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("a Python pickle with several values of `{key}`")),
            (first, None) => Ok(first.map(|(_, value)| *value)),
        }
    }

    /// Returns the numbers of a list, a tuple or an array of whole numbers.
    ///
    /// # Errors
    /// A description, if the value is none of these.
    pub(crate) fn numbers(&self, place: ValueIndex) -> Result<Vec<i64>, String> {
        match &self.values[place] {
            Value::List(items) => items.iter().map(|item| self.number(*item)).collect(),
            _ => self.array(place)?.numbers(),
        }
    }

    fn number(&self, place: ValueIndex) -> Result<i64, String> {
        match self.values[place] {
            Value::Int(number) => Ok(number),
            Value::Bool(truth) => Ok(i64::from(truth)),
            _ => self.scalar(place).ok_or("not whole numbers alone")?,
        }
    }

    /// Returns a NumPy scalar: a call with its type and its bytes.
    fn scalar(&self, place: ValueIndex) -> Option<Result<i64, String>> {
        let (function, arguments, _) = self.call(place)?;
        let (dtype, value) = match (numpy(function)?, arguments) {
            ("multiarray.scalar", [dtype, value]) => (self.dtype(*dtype), self.text(*value)?),
            _ => return None,
        };
        Some(dtype.and_then(|dtype| dtype.number(&value)))
    }

    /// Returns a NumPy array.
    ///
    /// # Errors
    /// A description, if the value is not an array, or an array of an unsupported kind.
    pub(crate) fn array(&self, place: ValueIndex) -> Result<Array<'_>, String> {
        let none = || "not a NumPy array".to_owned();
        let (function, arguments, state) = self.call(place).ok_or_else(none)?;
        let (shape, dtype, by_columns, content) = match numpy(function).ok_or_else(none)? {
            // Up to protocol 4: an empty array, whose state holds the content.
            "multiarray._reconstruct" => {
                let state = state.and_then(|state| self.list(state)).ok_or_else(none)?;
                match state {
                    [.., shape, dtype, by_columns, content] => {
                        let by_columns =
                            matches!(self.values[*by_columns], Value::Bool(true) | Value::Int(1));
                        (*shape, *dtype, by_columns, *content)
                    }
                    _ => return Err(none()),
                }
            }
            // Protocol 5.
            "numeric._frombuffer" => match arguments {
                [content, dtype, shape, order] => {
                    let by_columns = self.text(*order).as_deref() == Some(b"F");
                    (*shape, *dtype, by_columns, *content)
                }
                _ => return Err(none()),
            },
            _ => return Err(none()),
        };
        let shape = self.list(shape).ok_or_else(none)?;
        let axis = |place: &ValueIndex| {
            let axis = self.number(*place)?;
            usize::try_from(axis).map_err(|_| format!("an axis of {axis} values"))
        };
        let shape = shape.iter().map(axis).collect::<Result<_, _>>()?;
        let dtype = self.dtype(dtype)?;
        let content = self.text(content).ok_or("an array of objects")?;
        Array::new(shape, dtype, by_columns, content)
    }

    /// Returns a NumPy type: a call with its name, and the byte order in its state.
    fn dtype(&self, place: ValueIndex) -> Result<Dtype, String> {
        let unknown = || "an array of an unknown type".to_owned();
        let (class, arguments, state) = self.call(place).ok_or_else(unknown)?;
        let name = arguments.first().and_then(|name| self.text(*name));
        let name = name
            .filter(|_| class == "numpy.dtype")
            .ok_or_else(unknown)?;
        let order = state
            .and_then(|state| self.list(state)?.get(1))
            .and_then(|order| self.text(*order));
        let order = order.as_deref().map(String::from_utf8_lossy);
        Dtype::parse(&String::from_utf8_lossy(&name), order.as_deref())
    }

    /// Returns function, arguments and state of a call.
    fn call(&self, place: ValueIndex) -> Option<(&str, &[ValueIndex], Option<ValueIndex>)> {
        let Value::Call {
            function,
            arguments,
            state,
        } = &self.values[place]
        else {
            return None;
        };
        match &self.values[*function] {
            Value::Global(name) => Some((name, self.list(*arguments)?, *state)),
            _ => None,
        }
    }

    fn list(&self, place: ValueIndex) -> Option<&[ValueIndex]> {
        match &self.values[place] {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns bytes or text. Under older protocols, Python 3 writes bytes as a text and the call
    /// that encodes it.
    pub(super) fn text(&self, place: ValueIndex) -> Option<Cow<'_, [u8]>> {
        if let Some(text) = self.plain_text(place) {
            return Some(Cow::Borrowed(text));
        }
        let (function, arguments, _) = self.call(place)?;
        match (function, arguments) {
            (
                "__builtin__.bytes"
                | "builtins.bytes"
                | "__builtin__.bytearray"
                | "builtins.bytearray",
                [],
            ) => Some(Cow::Borrowed(&[])),
            ("__builtin__.bytearray" | "builtins.bytearray", [bytes]) => {
                self.plain_text(*bytes).map(Cow::Borrowed)
            }
            ("_codecs.encode" | "__builtin__.bytearray" | "builtins.bytearray", [text, code]) => {
                let is_latin = matches!(self.plain_text(*code)?, b"latin1" | b"latin-1");
                let text = std::str::from_utf8(self.plain_text(*text)?).ok()?;
                let bytes = text.chars().map(|symbol| u8::try_from(symbol).ok());
                bytes
                    .collect::<Option<Vec<u8>>>()
                    .filter(|_| is_latin)
                    .map(Cow::Owned)
            }
            _ => None,
        }
    }

    fn plain_text(&self, place: ValueIndex) -> Option<&[u8]> {
        match &self.values[place] {
            Value::Bytes(range) => Some(&self.bytes[range.clone()]),
            Value::Spelt(text) => Some(text),
            _ => None,
        }
    }
}

/// Returns the name of a NumPy function within its core package, which is called `numpy.core`
/// before version 2.
fn numpy(function: &str) -> Option<&str> {
    let core = ["numpy.core.", "numpy._core."];
    core.iter().find_map(|module| function.strip_prefix(module))
}
