//! Python's pickles of every protocol, as far as data needs them: numbers, text, lists, tuples,
//! dictionaries and arrays.
//!
//! A pickle is a program for a stack machine, and Python's interpreter calls any function that it
//! names. Here nothing is called: a call is kept as the function's name with its arguments, and
//! only the few calls that create bytes and arrays are interpreted ([`values`]). Values are stored
//! in a flat list and refer to each other by index, so neither nesting nor repetition takes extra
//! stack or memory. Format: the module `pickletools` of Python's library.

mod literals;
mod values;

use std::collections::HashMap;
use std::ops::Range;

use crate::words::counted;

/// Maximum number of instructions; a file of 10,000 pictures has 60,000.
const MOST: usize = 2_000_000;

/// Maximum length of a name, number or key that is spelt in text.
const LONGEST_WORD: usize = 256;

/// Index of a value in [`Pickle::values`].
pub(crate) type ValueIndex = usize;

#[derive(Debug, Clone)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// Bytes or text, as a range of the pickle.
    Bytes(Range<usize>),
    /// Bytes or text that the pickle encodes in another form, decoded.
    Spelt(Vec<u8>),
    /// A list or a tuple.
    List(Vec<ValueIndex>),
    Dictionary(Vec<(ValueIndex, ValueIndex)>),
    /// A function or class by name: `numpy.ndarray`.
    Global(String),
    /// A call of a function, and the state that is set on its result.
    Call {
        function: ValueIndex,
        arguments: ValueIndex,
        state: Option<ValueIndex>,
    },
}

/// A parsed pickle.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    bytes: &'a [u8],
    values: Vec<Value>,
    root: ValueIndex,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle.
    ///
    /// # Errors
    /// The pickle is cut short, has an instruction that data does not need, has too many of them,
    /// or is not all that is there.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Pickle<'a>, String> {
        let mut machine = Machine {
            bytes,
            next: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            copied: 0,
        };
        for _ in 0..MOST {
            if machine.step()? {
                let root = machine.pop()?;
                let rest = bytes.len() - machine.next;
                if rest > 0 {
                    return Err(format!(
                        "{} after its end, such as a second pickle, would not be read",
                        counted(rest, "byte")
                    ));
                }
                return Ok(Pickle {
                    bytes,
                    values: machine.values,
                    root,
                });
            }
        }
        Err(format!("more than {MOST} instructions"))
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    next: usize,
    values: Vec<Value>,
    stack: Vec<ValueIndex>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<usize, ValueIndex>,
    /// Pairs in dictionaries, which each call copies.
    copied: usize,
}

impl Machine<'_> {
    /// Runs one instruction, named here as in `pickletools`; returns whether it was the last.
    fn step(&mut self) -> Result<bool, String> {
        let code = self.read_uint(1)? as u8;
        match code {
            // STOP
            b'.' => return Ok(true),
            // PROTO, with the version
            0x80 => {
                self.read(1)?;
            }
            // FRAME, with its length
            0x95 => {
                self.read(8)?;
            }
            // NONE
            b'N' => self.push(Value::None),
            // FLOAT, BINFLOAT: no value that is read here is a float
            b'F' => {
                self.read_line(LONGEST_WORD)?;
                self.push(Value::None);
            }
            b'G' => {
                self.read(8)?;
                self.push(Value::None);
            }
            // INT, LONG: a line of digits; 00 and 01 are the truth values of protocol 0
            b'I' | b'L' => {
                let line = self.read_line(LONGEST_WORD)?;
                self.push(literals::number(&line)?);
            }
            // LONG1, LONG4: after their length
            0x8a => self.push_long(1)?,
            0x8b => self.push_long(4)?,
            // STRING: a literal of Python 2; UNICODE: Latin-1 with escapes
            b'S' => {
                let line = self.read_line(usize::MAX)?;
                self.push(Value::Spelt(literals::string(&line)?));
            }
            b'V' => {
                let line = self.read_line(usize::MAX)?;
                self.push(Value::Spelt(literals::unicode(&line)?));
            }
            // NEWTRUE
            0x88 => self.push(Value::Bool(true)),
            // NEWFALSE
            0x89 => self.push(Value::Bool(false)),
            // BININT1
            b'K' => self.push_int(1)?,
            // BININT2
            b'M' => self.push_int(2)?,
            // BININT
            b'J' => {
                let number = self.read_uint(4)? as u32;
                self.push(Value::Int(i64::from(number as i32)));
            }
            // SHORT_BINSTRING, SHORT_BINBYTES, SHORT_BINUNICODE
            b'U' | b'C' | 0x8c => self.push_bytes(1)?,
            // BINSTRING, BINUNICODE, BINBYTES
            b'T' | b'X' | b'B' => self.push_bytes(4)?,
            // BINUNICODE8, BINBYTES8, BYTEARRAY8
            0x8d | 0x8e | 0x96 => self.push_bytes(8)?,
            // EMPTY_LIST, EMPTY_TUPLE
            b']' | b')' => self.push(Value::List(Vec::new())),
            // EMPTY_DICT
            b'}' => self.push(Value::Dictionary(Vec::new())),
            // MARK
            b'(' => self.marks.push(self.stack.len()),
            // TUPLE, LIST
            b't' | b'l' => {
                let items = self.pop_mark()?;
                self.push(Value::List(items));
            }
            // TUPLE1, TUPLE2, TUPLE3
            0x85..=0x87 => {
                let items = self.pop_many(usize::from(code - 0x84))?;
                self.push(Value::List(items));
            }
            // DICT
            b'd' => {
                let items = self.pop_mark()?;
                self.push(Value::Dictionary(Vec::new()));
                self.set_items(&items)?;
            }
            // POP, POP_MARK, DUP
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.pop_mark()?;
            }
            b'2' => {
                let place = *self.stack.last().ok_or("an empty stack")?;
                self.stack.push(place);
            }
            // APPEND
            b'a' => {
                let items = self.pop_many(1)?;
                self.append_items(items)?;
            }
            // APPENDS
            b'e' => {
                let items = self.pop_mark()?;
                self.append_items(items)?;
            }
            // SETITEM
            b's' => {
                let items = self.pop_many(2)?;
                self.set_items(&items)?;
            }
            // SETITEMS
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(&items)?;
            }
            // GLOBAL: module and name, a line each
            b'c' => {
                let parts = [self.read_line(LONGEST_WORD)?, self.read_line(LONGEST_WORD)?];
                let parts = parts.map(|part| String::from_utf8_lossy(&part).into_owned());
                self.push(Value::Global(parts.join(".")));
            }
            // STACK_GLOBAL
            0x93 => self.push_global()?,
            // REDUCE, NEWOBJ: a call
            b'R' | 0x81 => {
                let arguments = self.pop()?;
                let function = self.pop()?;
                let call = Value::Call {
                    function,
                    arguments,
                    state: None,
                };
                let dictionary = self.ordered_dictionary(function, arguments);
                if let Some(Value::Dictionary(pairs)) = &dictionary {
                    self.copied += pairs.len();
                    if self.copied > MOST {
                        return Err(format!("more than {MOST} pairs in dictionaries"));
                    }
                }
                self.push(dictionary.unwrap_or(call));
            }
            // BUILD: the state of a call's result
            b'b' => {
                let told = self.pop()?;
                match self.top()? {
                    Value::Call { state, .. } => *state = Some(told),
                    _ => return Err("a state for what is no object".to_owned()),
                }
            }
            // PUT, GET: the key as a line of digits
            b'p' => {
                let key = self.read_key()?;
                self.put(key)?;
            }
            b'g' => {
                let key = self.read_key()?;
                self.get(key)?;
            }
            // BINPUT
            b'q' => self.put_at(1)?,
            // LONG_BINPUT
            b'r' => self.put_at(4)?,
            // MEMOIZE
            0x94 => {
                let place = *self.stack.last().ok_or("an empty stack")?;
                self.memo.insert(self.memo.len(), place);
            }
            // BINGET
            b'h' => self.get_at(1)?,
            // LONG_BINGET
            b'j' => self.get_at(4)?,
            other => {
                return Err(format!(
                    "the instruction {other:#04x}, which data does not need"
                ));
            }
        }
        Ok(false)
    }

    fn read(&mut self, count: usize) -> Result<Range<usize>, String> {
        let end = self.next.checked_add(count);
        match end.filter(|end| *end <= self.bytes.len()) {
            Some(end) => Ok(std::mem::replace(&mut self.next, end)..end),
            None => Err("it is cut short".to_owned()),
        }
    }

    /// Reads an unsigned number of this many bytes, little-endian.
    fn read_uint(&mut self, bytes: usize) -> Result<u64, String> {
        let range = self.read(bytes)?;
        let digits = self.bytes[range].iter().rev();
        Ok(digits.fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Reads the bytes up to the end of the line, at most `longest`.
    fn read_line(&mut self, longest: usize) -> Result<Vec<u8>, String> {
        let rest = &self.bytes[self.next..];
        let end = rest.iter().take(longest).position(|&byte| byte == b'\n');
        let end = end.ok_or("a line without an end")?;
        let line = rest[..end].to_vec();
        self.next += end + 1;
        Ok(line)
    }

    fn read_key(&mut self) -> Result<usize, String> {
        match literals::number(&self.read_line(LONGEST_WORD)?)? {
            Value::Int(key) => usize::try_from(key).map_err(|error| error.to_string()),
            _ => Err("a key that is no number".to_owned()),
        }
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn push_int(&mut self, bytes: usize) -> Result<(), String> {
        let number = self.read_uint(bytes)? as i64;
        self.push(Value::Int(number));
        Ok(())
    }

    /// Pushes a signed number that follows its length, which itself has the given number of bytes.
    fn push_long(&mut self, bytes: usize) -> Result<(), String> {
        let length = self.read_uint(bytes)? as usize;
        if length > 8 {
            return Err("a number of more than 64 bits".to_owned());
        }
        let unused = 64 - 8 * length as u32;
        let number = match length {
            0 => 0,
            length => (self.read_uint(length)? << unused) as i64 >> unused,
        };
        self.push(Value::Int(number));
        Ok(())
    }

    /// Returns the dictionary that a call of `collections.OrderedDict` makes: an empty one, or one
    /// of a list of pairs.
    fn ordered_dictionary(&self, function: ValueIndex, arguments: ValueIndex) -> Option<Value> {
        let items = |place: ValueIndex| match &self.values[place] {
            Value::List(items) => Some(&items[..]),
            _ => None,
        };
        match &self.values[function] {
            Value::Global(name) if name == "collections.OrderedDict" => {}
            _ => return None,
        }
        let pairs = match items(arguments)? {
            [] => &[],
            [pairs] => items(*pairs)?,
            _ => return None,
        };
        let pair = |place: &ValueIndex| match items(*place)? {
            [key, value] => Some((*key, *value)),
            _ => None,
        };
        pairs
            .iter()
            .map(pair)
            .collect::<Option<_>>()
            .map(Value::Dictionary)
    }

    /// Pushes bytes that follow their length, which itself has the given number of bytes.
    fn push_bytes(&mut self, bytes: usize) -> Result<(), String> {
        let length = usize::try_from(self.read_uint(bytes)?).map_err(|error| error.to_string())?;
        let range = self.read(length)?;
        self.push(Value::Bytes(range));
        Ok(())
    }

    fn push_global(&mut self) -> Result<(), String> {
        let parts = self.pop_many(2)?;
        let part = |place: &ValueIndex| match &self.values[*place] {
            Value::Bytes(range) if range.len() <= LONGEST_WORD => {
                Ok(String::from_utf8_lossy(&self.bytes[range.clone()]).into_owned())
            }
            _ => Err("a name that is no text".to_owned()),
        };
        let name = parts.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        self.push(Value::Global(name.join(".")));
        Ok(())
    }

    fn pop(&mut self) -> Result<ValueIndex, String> {
        Ok(self.pop_many(1)?[0])
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<ValueIndex>, String> {
        let bottom = self.marks.last().copied().unwrap_or_default();
        match self.stack.len().checked_sub(count) {
            Some(start) if start >= bottom => Ok(self.stack.split_off(start)),
            _ => Err("an empty stack".to_owned()),
        }
    }

    fn pop_mark(&mut self) -> Result<Vec<ValueIndex>, String> {
        let mark = self.marks.pop().ok_or("an end without a beginning")?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&mut self) -> Result<&mut Value, String> {
        let place = *self.stack.last().ok_or("an empty stack")?;
        Ok(&mut self.values[place])
    }

    fn append_items(&mut self, mut more: Vec<ValueIndex>) -> Result<(), String> {
        match self.top()? {
            Value::List(items) => items.append(&mut more),
            _ => return Err("items for what is no list".to_owned()),
        }
        Ok(())
    }

    fn set_items(&mut self, more: &[ValueIndex]) -> Result<(), String> {
        let pairs = more.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        match self.top()? {
            Value::Dictionary(items) => items.extend(pairs),
            _ => return Err("items for what is no dictionary".to_owned()),
        }
        Ok(())
    }

    fn put_at(&mut self, bytes: usize) -> Result<(), String> {
        let key = self.read_uint(bytes)? as usize;
        self.put(key)
    }

    fn put(&mut self, key: usize) -> Result<(), String> {
        let place = *self.stack.last().ok_or("an empty stack")?;
        self.memo.insert(key, place);
        Ok(())
    }

    fn get_at(&mut self, bytes: usize) -> Result<(), String> {
        let key = self.read_uint(bytes)? as usize;
        self.get(key)
    }

    fn get(&mut self, key: usize) -> Result<(), String> {
        let place = *self.memo.get(&key).ok_or("a value that was not kept")?;
        self.stack.push(place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by Python's `pickle.dumps` from `{"labels": [6, 300, -1], "same": "labels"}` under
    /// protocols 0, 2 and 4.
    #[test]
    fn what_python_writes_is_read() {
        for bytes in [
            &b"(dp0\nVlabels\np1\n(lp2\nI6\naI300\naI-1\nasVsame\np3\ng1\ns."[..],
            b"\x80\x02}q\x00(X\x06\x00\x00\x00labelsq\x01]q\x02(K\x06M,\x01J\xff\xff\xff\xffeX\x04\x00\x00\x00sameq\x03h\x01u.",
            b"\x80\x04\x95%\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x06labels\x94]\x94(K\x06M,\x01J\xff\xff\xff\xffe\x8c\x04same\x94h\x01u.",
        ] {
            let pickle = Pickle::read(bytes).unwrap();
            let labels = pickle.item("labels").unwrap().unwrap();
            assert_eq!(pickle.numbers(labels), Ok(vec![6, 300, -1]));
            let same = pickle.text(pickle.item("same").unwrap().unwrap());
            assert_eq!(same.as_deref(), Some(&b"labels"[..]));
            assert_eq!(pickle.item("other"), Ok(None));
        }
    }

    /// Written by Python's `pickle.dumps` under protocol 2, but for the length of four bytes, which
    /// it writes for longer numbers alone.
    #[test]
    fn long_numbers_have_signs() {
        let numbers = [
            &b"\x8a\0"[..],
            b"\x8a\x01\x7f",
            b"\x8a\x01\xff",
            b"\x8a\x02\0\x80",
            b"\x8a\x05\0\0\0\0\x01",
            b"\x8a\x08\0\0\0\0\0\0\0\x80",
            b"\x8b\x01\0\0\0\xfe",
        ];
        let bytes = [&b"]("[..], &numbers.concat(), b"e."].concat();
        let pickle = Pickle::read(&bytes).unwrap();
        assert_eq!(
            pickle.numbers(pickle.root),
            Ok(vec![0, 127, -1, -32_768, 1 << 32, i64::MIN, -2])
        );
        assert!(Pickle::read(b"\x8a\x09\0\0\0\0\0\0\0\0\0.").is_err());
    }

    /// Python takes the last value.
    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let twice = Pickle::read(b"}(U\x01aK\x01X\x01\0\0\0aK\x02U\x01bK\x03u.").unwrap();
        let refused = twice.item("a").unwrap_err();
        assert!(refused.contains("several values of `a`"), "{refused}");
        assert!(twice.item("b").unwrap().is_some());
    }

    /// `os.system("touch evil")`, and other programs.
    #[test]
    fn nothing_is_called_and_nothing_grows() {
        for evil in [
            &b"cos\nsystem\n(S'touch evil'\ntR."[..],
            b"cos\nsystem\nU\x0atouch evil\x85R.",
        ] {
            let evil = Pickle::read(evil).unwrap();
            assert!(evil.item("data") == Ok(None) && evil.array(evil.root).is_err());
            assert!(evil.numbers(evil.root).is_err() && evil.text(evil.root).is_none());
        }
        let evil = Pickle::read(b"(S'touch evil'\nios\nsystem\n.").unwrap_err();
        assert!(evil.contains("0x69"), "{evil}");
        for wrong in [
            &b""[..],
            b".",
            b"K",
            b"}K\x01K\x02K\x03(u",
            b"h\x07.",
            b"(t",
            b"t.",
            b"U\xffabc",
            b"]K\x01u.",
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
            b"K\x01b.",
            b"c\n",
            b"].].",
            b"].\n",
        ] {
            assert!(Pickle::read(wrong).is_err(), "{wrong:?}");
        }
        let mut deep = vec![b'N'];
        deep.resize(MOST - 10, 0x85);
        deep.push(b'.');
        assert!(Pickle::read(&deep).is_ok());
        deep.splice(0..0, vec![b'N'; 20]);
        assert!(Pickle::read(&deep).unwrap_err().contains("more than"));
        // Every value would be twice as large as the previous one, if it were written out.
        let mut doubling = b"]q\x00".to_vec();
        for _ in 0..1000 {
            doubling.extend(b"q\x01h\x01h\x01\x86");
        }
        assert!(Pickle::read(&[&doubling[..], b"."].concat()).is_ok());
        // A list of 1,000 pairs, of which each call makes a dictionary.
        let calls = |count: usize| {
            let mut calls = b"ccollections\nOrderedDict\nq\x00K\x01K\x02\x86q\x01](".to_vec();
            calls.extend(b"h\x01".repeat(1000));
            calls.extend(b"e\x85q\x02");
            calls.extend(b"h\x00h\x02R0".repeat(count));
            calls.extend(b"N.");
            calls
        };
        assert!(Pickle::read(&calls(MOST / 1000)).is_ok());
        let error = Pickle::read(&calls(MOST / 1000 + 1)).unwrap_err();
        assert!(error.contains("pairs in dictionaries"), "{error}");
    }
}
