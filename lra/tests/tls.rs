//! Trust of downloads: a server whose certificate is from an authority in this folder.
//!
//! The private key beside it is for this test alone and protects nothing.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Output;
use std::sync::Arc;

use crate::common::{Place, err};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates");

/// Starts a server that offers nine bytes to every client; returns its address.
fn serve() -> String {
    let file = |name: &str| std::fs::read(format!("{FOLDER}/{name}")).unwrap();
    let certificate = CertificateDer::from_pem_slice(&file("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&file("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            // A client that does not trust it hangs up here.
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntoo small");
                let _ = stream.flush();
            }
        }
    });
    format!("https://127.0.0.1:{port}")
}

fn fetch(mirror: &str, certificates: Option<&str>) -> Output {
    let place = Place::new();
    let mut command = place.command(&format!("data fetch image --mirror {mirror}"));
    for name in [
        "ALL_PROXY",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    ] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    if let Some(file) = certificates {
        command.env("SSL_CERT_FILE", format!("{FOLDER}/{file}"));
    }
    command.output().unwrap()
}

#[test]
fn the_certificates_that_the_system_names_are_trusted() {
    let address = serve();
    let trusting = fetch(&address, Some("authority.pem"));
    assert_eq!(trusting.status.code(), Some(3));
    let said = err(&trusting);
    assert!(said.contains("the server offers 9 bytes"), "{said}");
}

#[test]
fn certificates_that_cannot_be_read_are_no_reason_to_trust_others() {
    let said = err(&fetch("https://127.0.0.1:1", Some("nowhere.pem")));
    assert!(
        said.contains("SSL_CERT_FILE=") && said.contains("nowhere.pem"),
        "{said}"
    );
}
