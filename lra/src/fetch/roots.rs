//! Root certificates of TLS connections: the certificates of the system, or those that
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` name, as in other programs; if there are none, the built-in
//! ones of Mozilla.

use std::env;
use std::path::Path;
use std::sync::OnceLock;

use ureq::tls::{Certificate, RootCerts};

use super::wrong;
use crate::error::Result;

/// Variables that name certificates.
const NAMES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Returns the certificates, which are read once in a process.
///
/// # Errors
/// Certificates were named, but none can be read.
pub(super) fn roots() -> Result<RootCerts> {
    static ROOTS: OnceLock<Result<RootCerts, String>> = OnceLock::new();
    ROOTS.get_or_init(read).clone().map_err(wrong)
}

fn read() -> Result<RootCerts, String> {
    if let Some(file) = env::var_os(NAMES[0]) {
        // A pipe or a device might never end.
        disk::open(Path::new(&file))
            .map_err(|error| format!("{}={}: {error}", NAMES[0], file.display()))?;
    }
    let found = rustls_native_certs::load_native_certs();
    let named = NAMES.into_iter().find(|name| env::var_os(name).is_some());
    match (found.certs.is_empty(), named) {
        (false, _) => {
            let certificates = found.certs.iter();
            Ok(certificates
                .map(|der| Certificate::from_der(der).to_owned())
                .into())
        }
        (true, None) => Ok(RootCerts::WebPki),
        (true, Some(name)) => {
            let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            let reason = match reasons.is_empty() {
                true => "no certificate in the form of PEM".to_owned(),
                false => reasons.join("; "),
            };
            let value = env::var_os(name).unwrap_or_default();
            Err(format!("{name}={}: {reason}", value.display()))
        }
    }
}
