//! A server on this machine that answers as a test says, built on the standard library alone.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server that passes every request to `answer`, one after the other.
pub struct Server {
    pub address: String,
    seen: Arc<Mutex<Vec<Asked>>>,
}

/// A request to the server.
#[derive(Clone)]
pub struct Asked {
    /// Number of requests before it.
    pub number: usize,
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Asked {
    /// Returns the value of a header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let found = self
            .headers
            .iter()
            .find(|(have, _)| have.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// Returns the first byte requested.
    pub fn from(&self) -> usize {
        let range = self.header("range");
        let first = range.trim_start_matches("bytes=").trim_end_matches('-');
        first.parse().unwrap_or(0)
    }
}

impl Server {
    pub fn start(
        answer: impl Fn(&Asked, &mut TcpStream) -> std::io::Result<()> + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<Asked>>>::default();
        let noted = seen.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                let asked = Asked {
                    number,
                    path: first.split(' ').nth(1).unwrap().to_owned(),
                    headers: lines
                        .map_while(|line| {
                            let line = line.unwrap();
                            let (name, value) = line.split_once(": ")?;
                            Some((name.to_owned(), value.to_owned()))
                        })
                        .collect(),
                };
                noted.lock().unwrap().push(asked.clone());
                // A client that hangs up is part of some tests.
                let _ = answer(&asked, &mut stream);
            }
        });
        Server { address, seen }
    }

    /// Returns all requests so far.
    pub fn seen(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the `Range` headers of all requests.
    pub fn ranges(&self) -> Vec<String> {
        self.seen()
            .iter()
            .map(|asked| asked.header("range").to_owned())
            .collect()
    }
}

/// Answers with the requested part and this version, but stops after `bytes`.
pub fn serve(
    asked: &Asked,
    stream: &mut TcpStream,
    content: &[u8],
    version: &str,
    bytes: usize,
) -> std::io::Result<()> {
    let from = match ["", version].contains(&asked.header("if-range")) {
        true => asked.from(),
        false => 0,
    };
    let rest = &content[from..];
    let status = match from {
        0 => "200 OK".to_owned(),
        _ => format!(
            "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
            content.len() - 1,
            content.len()
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {version}\r\nConnection: close\r\n\r\n",
        rest.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&rest[..bytes.min(rest.len())])
}

/// Answers with a status line, further headers and a body.
pub fn answer(stream: &mut TcpStream, head: &str, body: &[u8]) -> std::io::Result<()> {
    stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes())?;
    stream.write_all(body)
}
