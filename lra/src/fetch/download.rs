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

use super::part::Part;
use super::proxy::Connections;
use super::roots::roots;
use super::{Fetched, Limits, beside, damage_of, described, hash, locked, wrong};
use crate::error::Result;

/// A file to download.
pub(super) struct Download<'a> {
    pub(super) url: &'a str,
    /// Its published size.
    pub(super) bytes: Option<u64>,
    /// Its published SHA-256.
    pub(super) sha256: Option<&'a str>,
    pub(super) target: &'a Path,
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

impl Download<'_> {
    /// Downloads the file within the limits.
    pub(super) fn run(&self) -> Result<Fetched> {
        let path = beside(self.target, ".part");
        let origin = beside(self.target, ".part.from");
        let file = locked(&path, self.target)?;
        let mut part = Part::open(file, path, origin, self.url)?;
        loop {
            let resumed = part.bytes > 0;
            self.complete(&mut part)?;
            if let Some(got) = datasets::unlike_archive(&part.path)? {
                part.restart()?;
                // As below, an earlier attempt may have left another file.
                if resumed {
                    continue;
                }
                part.remove();
                return Err(wrong(format!(
                    "{}: what came is no archive but {}; it was not kept",
                    self.url,
                    disk::escape(&got)
                )));
            }
            let sha256 = hash(&part.path, self.progress)?;
            match self.sha256 {
                Some(known) if known != sha256 => {
                    part.restart()?;
                    // The part left by an earlier attempt may have been damaged: start once more
                    // from the beginning.
                    if resumed {
                        continue;
                    }
                    part.remove();
                    return Err(wrong(format!(
                        "{} gave a file with the SHA-256 {sha256} instead of the published {known}; it was not kept. \
                         Try again later, or name another copy with --from",
                        self.url
                    )));
                }
                Some(_) => {}
                // Nothing else shows whether it is whole.
                None => {
                    if let Some(damage) = damage_of(&part.path, self.progress)? {
                        part.restart()?;
                        if resumed {
                            continue;
                        }
                        part.remove();
                        return Err(wrong(format!(
                            "{}: what came is no whole archive ({damage}); it was not kept. \
                             Try again later, or name another copy with --from",
                            self.url
                        )));
                    }
                }
            }
            let file = &part.file;
            disk::sync(file).map_err(|error| part.unwritable(&error))?;
            disk::rename(&part.path, self.target).map_err(|error| part.unwritable(&error))?;
            let _ = fs::remove_file(&part.origin);
            return described(self.target, sha256, false);
        }
    }

    /// Connects until the file is complete.
    fn complete(&self, part: &mut Part) -> Result<()> {
        let mut failed = 0;
        loop {
            let before = part.bytes;
            let reason = match self.connect(part)? {
                End::Complete => return Ok(()),
                End::Broken(reason) => reason,
            };
            failed = if part.bytes > before { 1 } else { failed + 1 };
            if failed >= self.limits.attempts {
                return Err(wrong(format!(
                    "{}: {reason}; {} kept, the same command goes on from there",
                    self.url,
                    counted(part.bytes, "byte")
                )));
            }
            std::thread::sleep(self.limits.pause * 2_u32.pow((failed - 1).min(10)));
        }
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
            part.restart()?;
        }
        let mut request = agent.get(self.url);
        if part.bytes > 0 {
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
            ) => return Err(wrong(format!("{}: {error}", self.url))),
            Err(error) => return Ok(End::Broken(error.to_string())),
        };
        let status = response.status();
        match status {
            StatusCode::OK => part.restart()?,
            StatusCode::PARTIAL_CONTENT if part.goes_on(&response) => {}
            // The server's file is not the one that was begun, or it is shorter.
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                part.restart()?;
                return Ok(End::Broken(format!("the server answers {status}")));
            }
            status if status.is_server_error() || status.as_u16() == 429 => {
                return Ok(End::Broken(format!("the server answers {status}")));
            }
            status => {
                return Err(wrong(format!(
                    "{}: the server answers {status}; name another copy with --from FILE or --from URL",
                    self.url
                )));
            }
        }
        let total = length(&response).map(|rest| part.bytes + rest);
        self.check_offer(&response, total)?;
        part.note_version(&response, total)?;
        self.receive(&mut response, total, part)
    }

    /// Refuses a response that cannot be the file before any of it is stored.
    fn check_offer(&self, response: &Response<Body>, total: Option<u64>) -> Result<()> {
        match (total, self.bytes) {
            (Some(total), Some(bytes)) if total != bytes => Err(wrong(format!(
                "{}: the server offers {}, the published file has {bytes}",
                self.url,
                counted(total, "byte")
            ))),
            (Some(total), None) if total > self.limits.largest => Err(wrong(format!(
                "{}: the server offers {}, more than the {} that are accepted",
                self.url,
                counted(total, "byte"),
                self.limits.largest
            ))),
            _ if text(response, header::CONTENT_TYPE).starts_with("text/html") => {
                Err(wrong(format!(
                    "{}: the server answers with a web page instead of the file",
                    self.url
                )))
            }
            _ => Ok(()),
        }
    }

    fn receive(
        &self,
        response: &mut Response<Body>,
        total: Option<u64>,
        part: &mut Part,
    ) -> Result<End> {
        let what = format!(
            "fetching {}",
            self.target.file_name().unwrap_or_default().display()
        );
        self.progress.begin(&what, total.or(self.bytes));
        self.progress.advance(part.bytes);
        let end = self.take(&mut response.body_mut().as_reader(), total, part);
        self.progress.finish();
        end
    }

    fn take(&self, body: &mut dyn Read, total: Option<u64>, part: &mut Part) -> Result<End> {
        let most = total.or(self.bytes).unwrap_or(self.limits.largest);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Ok(End::Broken(format!("the connection broke: {error}"))),
            };
            if part.bytes + count as u64 > most {
                part.remove();
                return Err(wrong(format!(
                    "{}: more than {} came",
                    self.url,
                    counted(most, "byte")
                )));
            }
            part.append(&buffer[..count])?;
            self.progress.advance(count as u64);
        }
        match total.or(self.bytes) {
            Some(total) if part.bytes < total => Ok(End::Broken(format!(
                "the connection ended after {} of {}",
                part.bytes,
                counted(total, "byte")
            ))),
            _ => Ok(End::Complete),
        }
    }
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
