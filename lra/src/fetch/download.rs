//! One file from one address, over as many connections as necessary.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use datasets::Progress;
use results::counted;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::{Agent, Body};

use super::part::{Part, version_of};
use super::proxy::Connections;
use super::roots::roots;
use super::{Fetched, Limits, beside, damage_of, described, hash, locked, wrong};
use crate::error::{Error, Result};

/// A file to download.
pub(super) struct Download<'a> {
    pub(super) url: &'a str,
    /// Its published size.
    pub(super) bytes: Option<u64>,
    /// Its published SHA-256.
    pub(super) sha256: Option<&'a str>,
    pub(super) target: &'a Path,
    /// Alternatives to the download, at the end of its errors.
    pub(super) help: String,
    pub(super) limits: &'a Limits,
    pub(super) progress: &'a dyn Progress,
}

/// Outcome of one connection.
enum End {
    Complete,
    /// The connection broke and may be tried again; the reason is for the user in case it never
    /// succeeds.
    Broken(String),
}

/// Number of first bytes by which an answer is told from an archive, enough for a packed one.
const FIRST: u64 = 1 << 16;

/// First bytes of an answer.
#[derive(Default)]
struct First {
    bytes: Vec<u8>,
    /// Reason for which no more came, if the connection broke.
    broken: Option<String>,
}

impl Download<'_> {
    /// Downloads the file within the limits.
    pub(super) fn run(&self) -> Result<Fetched> {
        let path = beside(self.target, ".part");
        let origin = beside(self.target, ".part.from");
        let file = locked(&path, self.target)?;
        let mut part = Part::open(file, path, origin, self.url)?;
        loop {
            let resumed = part.goes_on();
            if let Err(error) = self.complete(&mut part) {
                part.remove_if_empty();
                return Err(error);
            }
            let sha256 = hash(&part.path, self.progress)?;
            if let Some(problem) = self.problem(&part, &sha256)? {
                part.restart()?;
                // What an earlier attempt left may have been damaged: start once more from the
                // beginning.
                if resumed {
                    continue;
                }
                part.remove();
                return Err(self.failed(&format!(
                    "{problem}; it was not kept. Try again later, or name another copy with --from"
                )));
            }
            let file = &part.file;
            disk::sync(file).map_err(|error| part.unwritable(&error))?;
            disk::rename(&part.path, self.target).map_err(|error| part.unwritable(&error))?;
            let _ = fs::remove_file(&part.origin);
            return described(self.target, sha256, false);
        }
    }

    /// Returns what is wrong with a complete file that has this SHA-256; `None` if it is good.
    fn problem(&self, part: &Part, sha256: &str) -> Result<Option<String>> {
        let problem = match self.sha256 {
            Some(known) => (known != sha256).then(|| {
                format!("the download has the SHA-256 {sha256} instead of the published {known}")
            }),
            // Nothing else shows whether it is whole.
            None => damage_of(&part.path, self.progress)?
                .map(|damage| format!("the download is not a complete archive ({damage})")),
        };
        Ok(problem)
    }

    /// Connects until the file is complete.
    fn complete(&self, part: &mut Part) -> Result<()> {
        if part.is_whole() {
            return Ok(());
        }
        let mut failed = 0;
        loop {
            let before = part.bytes;
            let reason = match self.connect(part)? {
                End::Complete => return Ok(()),
                End::Broken(reason) => reason,
            };
            failed = if part.bytes > before { 1 } else { failed + 1 };
            if failed >= self.limits.attempts {
                return Err(self.refused(part, &reason));
            }
            std::thread::sleep(self.limits.pause * 2_u32.pow((failed - 1).min(10)));
        }
    }

    /// Returns an error about an answer, which says whether the part is kept.
    fn refused(&self, part: &Part, problem: &str) -> Error {
        let kept = match part.is_kept() {
            true => format!(
                "; {} kept, the same command continues from there",
                counted(part.bytes, "byte")
            ),
            false => String::new(),
        };
        self.failed(&format!("{problem}{kept}"))
    }

    /// Returns an error about what the server sent, with the alternatives.
    fn failed(&self, problem: &str) -> Error {
        wrong(format!("{}: {problem}{}", self.url, self.help))
    }

    /// Makes one connection: requests the missing part and stores what arrives.
    fn connect(&self, part: &mut Part) -> Result<End> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(self.limits.redirects)
            .timeout_connect(Some(self.limits.silence))
            .timeout_recv_response(Some(self.limits.silence))
            .timeout_per_read(Some(self.limits.silence))
            .tls_config(TlsConfig::builder().root_certs(roots()?).build())
            .user_agent(concat!("lra/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = Agent::with_parts(config, Connections::default(), DefaultResolver::default());
        if part.version.is_empty() && self.sha256.is_none() {
            // Without a version, nothing shows whether the rest is of the same file.
            part.begin_anew();
        }
        let mut request = agent.get(self.url);
        if part.goes_on() {
            request = request.header(header::RANGE, format!("bytes={}-", part.bytes));
            if !part.version.is_empty() {
                request = request.header(header::IF_RANGE, &part.version);
            }
        }
        let mut response = match request.call() {
            Ok(response) => response,
            // Errors that would recur in another attempt.
            Err(
                error @ (ureq::Error::BadUri(_)
                | ureq::Error::TooManyRedirects
                | ureq::Error::ConnectProxyFailed(_)),
            ) => return Err(self.refused(part, &error.to_string())),
            Err(error) => return Ok(End::Broken(error.to_string())),
        };
        let start = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT if part.goes_on_with(&response) => part.bytes,
            // The server's file is not the one that was begun, or it is shorter.
            status @ (StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE) => {
                part.begin_anew();
                return Ok(End::Broken(format!("the server answers {status}")));
            }
            status if status.is_server_error() || status.as_u16() == 429 => {
                return Ok(End::Broken(format!("the server answers {status}")));
            }
            status => {
                let problem = format!(
                    "the server answers {status}; name another copy with --from FILE or --from URL"
                );
                return Err(self.refused(part, &problem));
            }
        };
        let total = length(&response).map(|rest| start + rest);
        if let Some(problem) = self.wrong_offer(&response, total) {
            return Err(self.refused(part, &problem));
        }
        self.receive(&mut response, start, total, part)
    }

    /// Returns what is wrong with a response that cannot be the file, by its head.
    fn wrong_offer(&self, response: &Response<Body>, total: Option<u64>) -> Option<String> {
        match (total, self.bytes) {
            (Some(total), Some(bytes)) if total != bytes => Some(format!(
                "the server offers {}, the published file has {bytes}",
                counted(total, "byte")
            )),
            (Some(total), None) if total > self.limits.largest => Some(format!(
                "the server offers {}, more than the {} that are accepted",
                counted(total, "byte"),
                self.limits.largest
            )),
            _ if text(response, header::CONTENT_TYPE).starts_with("text/html") => {
                Some("the server answers with a web page instead of the file".to_owned())
            }
            _ => None,
        }
    }

    /// Stores the bytes of a response from this one on. A whole file replaces the part, once it
    /// begins like an archive.
    fn receive(
        &self,
        response: &mut Response<Body>,
        start: u64,
        total: Option<u64>,
        part: &mut Part,
    ) -> Result<End> {
        let version = version_of(response).to_owned();
        let mut body = response.body_mut().as_reader();
        let mut first = First::default();
        if start == 0 {
            first = First::of(&mut body);
            if let Some(got) = datasets::unlike_archive_beginning(&first.bytes) {
                // Few bytes say nothing.
                if let Some(reason) = first.cut_before(total) {
                    return Ok(End::Broken(reason));
                }
                let got = disk::escape(&got);
                let problem = format!("the download is not an archive but {got}; it was not kept");
                return Err(self.refused(part, &problem));
            }
            part.restart()?;
        }
        part.note_version(&version, total)?;
        let what = format!(
            "fetching {}",
            self.target.file_name().unwrap_or_default().display()
        );
        self.progress.begin(&what, total.or(self.bytes));
        self.progress.advance(part.bytes);
        let end = self.take(first, &mut body, total, part);
        self.progress.finish();
        end
    }

    fn take(
        &self,
        first: First,
        body: &mut dyn Read,
        total: Option<u64>,
        part: &mut Part,
    ) -> Result<End> {
        let most = total.or(self.bytes).unwrap_or(self.limits.largest);
        self.store(&first.bytes, most, part)?;
        if let Some(reason) = first.broken {
            return Ok(End::Broken(reason));
        }
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Ok(End::Broken(broken(&error))),
            };
            self.store(&buffer[..count], most, part)?;
        }
        match total.or(self.bytes) {
            Some(total) if part.bytes < total => Ok(End::Broken(ended(part.bytes, total))),
            _ => Ok(End::Complete),
        }
    }

    /// Appends bytes to the part, which may have at most this many.
    fn store(&self, bytes: &[u8], most: u64, part: &mut Part) -> Result<()> {
        if part.bytes + bytes.len() as u64 > most {
            part.remove();
            return Err(self.failed(&format!("more than {} came", counted(most, "byte"))));
        }
        part.append(bytes)?;
        self.progress.advance(bytes.len() as u64);
        Ok(())
    }
}

impl First {
    /// Reads the first bytes of a body.
    fn of(body: &mut dyn Read) -> First {
        let mut bytes = Vec::new();
        let read = body.take(FIRST).read_to_end(&mut bytes);
        First {
            bytes,
            broken: read.err().map(|error| broken(&error)),
        }
    }

    /// Returns the reason for which the connection ended within these bytes, of `total` in all;
    /// `None` if it did not.
    fn cut_before(&self, total: Option<u64>) -> Option<String> {
        let came = self.bytes.len() as u64;
        let rest = total.filter(|&total| came < total.min(FIRST));
        self.broken
            .clone()
            .or_else(|| rest.map(|total| ended(came, total)))
    }
}

fn broken(error: &std::io::Error) -> String {
    format!("the connection broke: {error}")
}

fn ended(bytes: u64, total: u64) -> String {
    format!(
        "the connection ended after {bytes} of {}",
        counted(total, "byte")
    )
}

fn length(response: &Response<Body>) -> Option<u64> {
    text(response, header::CONTENT_LENGTH).parse().ok()
}

/// Returns the value of a header; empty if there is none.
pub(super) fn text(response: &Response<Body>, name: header::HeaderName) -> &str {
    let value = response.headers().get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
