//! Downloads from a server that misbehaves in every way that is possible with the standard library.
//!
//! The binary has no library to link with, so the code under test is included as modules.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

#[path = "../src/error.rs"]
mod error;
#[path = "../src/fetch/mod.rs"]
mod fetch;
mod server;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use datasets::{Digest, Progress, Remote, Request, Shape, Source, SplitWriter, Task, TaskInfo};
use error::Class;
use fetch::{Fetched, Limits, Origin, fetch};
use serde_json::{Value, json};
use server::{Server, answer, serve};

/// Returns a tar archive of 300,000 bytes, of one member without a pattern that could hide an error
/// in an offset.
fn content() -> Vec<u8> {
    let mut state = 1_u32;
    let random = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(b"data");
    bytes[124..135].copy_from_slice(format!("{MEMBER:011o}").as_bytes());
    bytes[148..156].fill(b' ');
    bytes[156] = b'0';
    bytes[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = bytes.iter().map(|&byte| u32::from(byte)).sum();
    bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    bytes.extend((0..MEMBER).map(random));
    bytes.resize(300_000, 0);
    bytes
}

/// Sizes of the header and of the member of [`content`].
const HEADER: usize = 512;
const MEMBER: usize = 298_000;

fn limits() -> Limits {
    Limits {
        attempts: 3,
        pause: Duration::from_millis(1),
        silence: Duration::from_millis(300),
        redirects: 3,
        largest: 1_000_000,
    }
}

/// A task with one published file.
struct Published([Remote; 1]);

static INFO: TaskInfo = TaskInfo {
    name: "published",
    title: "Published",
    summary: "one file",
    paper: "none",
    version: 1,
    vocabulary: 257,
    first_id: 1,
    classes: 2,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Official],
    probe: false,
};

impl Task for Published {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }
    fn defaults(&self) -> Value {
        json!({})
    }
    fn shape(&self, _options: &Value) -> datasets::Result<Shape> {
        Ok(Shape {
            max_length: 1,
            train_length: 1,
            classes: INFO.classes,
            label: "published".to_owned(),
            grid: None,
            dense: None,
        })
    }
    fn build(&self, _request: &Request<'_>, _writer: &mut SplitWriter) -> datasets::Result<()> {
        Ok(())
    }
    fn to_text(&self, _towers: &[&[u8]], _label: u8) -> String {
        String::new()
    }
    fn remote(&self) -> &'static [Remote] {
        Box::leak(Box::new(self.0))
    }
}

/// Returns a task published at this address, with the SHA-256 of these bytes.
fn published(url: &str, bytes: &[u8]) -> Published {
    Published([Remote {
        url: Box::leak(url.to_owned().into_boxed_str()),
        file: "data.tar.gz",
        bytes: Some(bytes.len() as u64),
        sha256: Some(Box::leak(Digest::of(bytes).into_boxed_str())),
        note: "",
    }])
}

fn get(server: &Server, raw: &Path) -> error::Result<Vec<Fetched>> {
    fetch(
        &published(&format!("{}/data.tar.gz", server.address), &content()),
        raw,
        Origin::Published,
        &limits(),
        &(),
    )
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn arrives_whole_and_is_not_fetched_again() {
    let root = tempfile::tempdir().unwrap();
    let raw = root.path().join("raw/published");
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", usize::MAX));
    let fetched = get(&server, &raw).unwrap();
    assert_eq!((fetched[0].published, fetched[0].kept), (Some(true), false));
    assert_eq!(fs::read(&fetched[0].path).unwrap(), content());
    assert_eq!(names(&raw), ["data.tar.gz"]);
    assert!(get(&server, &raw).unwrap()[0].kept);
    assert_eq!(server.ranges().len(), 1);
    // An edited file is fetched again.
    let mut edited = content();
    edited[1000] ^= 1;
    fs::write(&fetched[0].path, edited).unwrap();
    assert!(!get(&server, &raw).unwrap()[0].kept);
    assert_eq!(fs::read(&fetched[0].path).unwrap(), content());
}

#[test]
fn goes_on_where_the_connection_broke() {
    let root = tempfile::tempdir().unwrap();
    // Every connection breaks after 70,000 bytes; five are needed, more than may fail in a row.
    let server = Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", 70_000));
    let fetched = get(&server, root.path()).unwrap();
    assert_eq!(fs::read(&fetched[0].path).unwrap(), content());
    let ranges = server.ranges();
    assert_eq!(ranges.len(), 5);
    assert!(
        ranges[1..].iter().all(|range| range.starts_with("bytes=")),
        "{ranges:?}"
    );
    assert!(
        server.seen()[1..]
            .iter()
            .all(|asked| asked.header("if-range") == "\"one\"")
    );
}

#[test]
fn goes_on_in_another_process_but_never_with_another_version() {
    for (second, resumes) in [("\"one\"", true), ("\"two\"", false)] {
        let root = tempfile::tempdir().unwrap();
        let server = Server::start(move |asked, stream| match asked.number {
            0 => serve(asked, stream, &content(), "\"one\"", 100_000),
            1..=2 => answer(stream, "503 Service Unavailable", b""),
            _ => serve(asked, stream, &content(), second, usize::MAX),
        });
        let error = get(&server, root.path()).unwrap_err();
        assert_eq!(error.class, Class::Data);
        let text = error.to_string();
        assert!(
            text.contains("503") && text.contains("the same command continues from there"),
            "{text}"
        );
        assert_eq!(
            names(root.path()),
            ["data.tar.gz.part", "data.tar.gz.part.from"]
        );
        assert!(
            fs::metadata(root.path().join("data.tar.gz.part"))
                .unwrap()
                .len()
                <= 100_000
        );
        assert_eq!(
            fs::read(&get(&server, root.path()).unwrap()[0].path).unwrap(),
            content()
        );
        let last = server.ranges().last().unwrap().clone();
        assert!(last.starts_with("bytes="), "it asks to go on: {resumes}");
    }
}

/// A web page, and the same page packed by gzip.
const PAGE: &[u8] = b"<html>please sign in</html>";
const PACKED_PAGE: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x1b\0\xe4\xff\
    <html>please sign in</html>\x31\x0f\xf0\x30\x1b\0\0\0";

/// Returns a server that sends a third of the file and fails, then answers with these heads and
/// bodies, then has the file again.
fn interrupted(replies: Vec<(&'static str, &'static [u8])>) -> Server {
    Server::start(move |asked, stream| match asked.number {
        0 => serve(asked, stream, &content(), "\"one\"", 100_000),
        1..=2 => answer(stream, "503 Service Unavailable", b""),
        number => match replies.get(number - 3) {
            Some((head, body)) => answer(stream, head, body),
            None => serve(asked, stream, &content(), "\"one\"", usize::MAX),
        },
    })
}

/// Tests wrong replies in place of the rest of a file: what was fetched before is kept.
#[test]
fn a_wrong_reply_costs_nothing_that_was_fetched() {
    const BYTES: &str = "200 OK\r\nContent-Type: application/octet-stream";
    const OTHER: &str = "206 Partial Content\r\nETag: \"two\"\r\nContent-Range: bytes 5-9/10";
    let kept = "; 100,000 bytes kept, the same command continues from there";
    for (replies, said) in [
        (vec![("200 OK\r\nContent-Type: text/html", PAGE)], kept),
        (vec![(BYTES, PAGE)], kept),
        (vec![(BYTES, PACKED_PAGE)], kept),
        (vec![(BYTES, b"{}")], kept),
        (vec![(BYTES, b"")], kept),
        (vec![("200 OK\r\nContent-Length: 99000000000", b"")], kept),
        (vec![("403 Forbidden", PAGE)], kept),
        // Few bytes may be the beginning of the file.
        (vec![("200 OK\r\nContent-Length: 300000", &[0; 9]); 3], kept),
        // The whole file is requested next.
        (
            vec![("416 Range Not Satisfiable", b""), (BYTES, PAGE)],
            "a web page",
        ),
        (vec![(OTHER, b"other"), (BYTES, PAGE)], "a web page"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let server = interrupted(replies.clone());
        let remote = Remote {
            bytes: None,
            sha256: None,
            ..published(&format!("{}/data.tar.gz", server.address), &[]).0[0]
        };
        let get = || {
            fetch(
                &Published([remote]),
                root.path(),
                Origin::Published,
                &limits(),
                &(),
            )
        };
        get().unwrap_err();
        let text = get().unwrap_err().to_string();
        assert!(text.contains(said), "{replies:?}: {text}");
        let part = root.path().join("data.tar.gz.part");
        assert_eq!(fs::read(part).unwrap(), content()[..100_000], "{replies:?}");
        assert_eq!(fs::read(&get().unwrap()[0].path).unwrap(), content());
        assert_eq!(server.ranges().last().unwrap(), "bytes=100000-");
        assert_eq!(names(root.path()), ["data.tar.gz"]);
    }
}

/// Tests that a part is not lost to a wrong reply from another address, and that a good one
/// replaces it.
#[test]
fn a_part_is_kept_until_the_file_comes_from_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    let server = interrupted(vec![("200 OK", PAGE)]);
    get(&server, root.path()).unwrap_err();
    let task = published("http://unused.invalid", &content());
    let mirror = format!("{}/mirror", server.address);
    let mirrored = || fetch(&task, root.path(), Origin::Mirror(&mirror), &limits(), &());
    let text = mirrored().unwrap_err().to_string();
    assert!(
        text.contains("a web page") && !text.contains("kept, "),
        "{text}"
    );
    let part = root.path().join("data.tar.gz.part");
    assert_eq!(fs::read(part).unwrap(), content()[..100_000]);
    assert_eq!(fs::read(&mirrored().unwrap()[0].path).unwrap(), content());
    assert_eq!(server.ranges()[3..], ["", ""]);
}

/// Tests a server that continues with the version it has by now, as servers do that do not know
/// `If-Range`.
#[test]
fn a_part_is_never_spliced_with_another_version() {
    let mut other = content();
    other[HEADER..HEADER + MEMBER].reverse();
    let longer = [other.clone(), vec![0; 500]].concat();
    let date = |day: u8| format!("Last-Modified: Sun, {day:02} Nov 2026 10:00:00 GMT");
    for (first, second, later) in [
        (
            "ETag: \"one\"".to_owned(),
            "ETag: \"two\"".to_owned(),
            other.clone(),
        ),
        (date(1), date(2), other),
        // The same version, but another size.
        (date(1), date(1), longer),
    ] {
        let root = tempfile::tempdir().unwrap();
        let wanted = later.clone();
        let server = Server::start(move |asked, stream| {
            let (content, version) = match asked.number {
                0 => (content(), &first),
                _ => (later.clone(), &second),
            };
            let (from, last, all) = (asked.from(), content.len() - 1, content.len());
            let status = match asked.header("range") {
                "" => "200 OK".to_owned(),
                _ => format!("206 Partial Content\r\nContent-Range: bytes {from}-{last}/{all}"),
            };
            let head = format!("{status}\r\nContent-Length: {}\r\n{version}", all - from);
            let end = if asked.number == 0 { 70_000 } else { all };
            answer(stream, &head, &content[from..end])
        });
        // From an address without a published SHA-256, only the server's version can tell.
        let from = format!("{}/data.tar.gz", server.address);
        let task = published("http://unused", &[]);
        let fetched = fetch(&task, root.path(), Origin::From(&from), &limits(), &()).unwrap();
        assert!(fs::read(&fetched[0].path).unwrap() == wanted, "spliced");
        let ranges = server.ranges();
        assert!(
            ranges[1].starts_with("bytes=") && ranges[2].is_empty(),
            "{ranges:?}"
        );
    }
}

#[test]
fn a_mirror_has_the_files_under_their_names_and_is_held_to_their_sums() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|asked, stream| match asked.path.as_str() {
        "/pub/lra/data.tar.gz" => serve(asked, stream, &content(), "\"one\"", usize::MAX),
        _ => answer(stream, "404 Not Found", b""),
    });
    let task = published("http://unused.invalid", &content());
    for end in ["", "/"] {
        let base = format!("{}/pub/lra{end}", server.address);
        let raw = root.path().join(format!("raw{}", end.len()));
        let fetched = fetch(&task, &raw, Origin::Mirror(&base), &limits(), &()).unwrap();
        assert_eq!(fetched[0].published, Some(true));
    }
    let base = format!("{}/pub/lra", server.address);
    let other = published("http://unused.invalid", &[1; 300_000]);
    let error = fetch(&other, root.path(), Origin::Mirror(&base), &limits(), &()).unwrap_err();
    assert!(
        error.to_string().contains("instead of the published"),
        "{error}"
    );
    let error = fetch(
        &other,
        root.path(),
        Origin::Mirror("ftp://host"),
        &limits(),
        &(),
    )
    .unwrap_err();
    assert_eq!(error.class, Class::Usage);
    // The same origin from the environment.
    let output = Command::new(env!("CARGO_BIN_EXE_lra"))
        .args(["data", "fetch", "text", "--data"])
        .arg(root.path())
        .env("LRA_MIRROR", format!("{}/elsewhere", server.address))
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        server.seen().last().unwrap().path,
        "/elsewhere/aclImdb_v1.tar.gz"
    );
}

#[test]
fn a_failure_says_what_else_helps() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|_, stream| answer(stream, "403 Forbidden", b""));
    let text = get(&server, root.path()).unwrap_err().to_string();
    for words in [
        "make published --from FILE",
        "--mirror URL",
        "HTTPS_PROXY",
        "SSL_CERT_FILE",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let image = datasets::tasks::find("image").unwrap();
    let base = server.address.clone();
    let error = fetch(image, root.path(), Origin::Mirror(&base), &limits(), &()).unwrap_err();
    let stand_in = "lra run --task image --source synthetic";
    assert!(error.to_string().contains(stand_in), "{error}");
}

#[test]
fn a_server_without_ranges_or_versions_starts_over() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|asked, stream| {
        let head = format!("200 OK\r\nContent-Length: {}", content().len());
        let count = if asked.number == 0 {
            50_000
        } else {
            content().len()
        };
        answer(stream, &head, &content()[..count])
    });
    let fetched = get(&server, root.path()).unwrap();
    assert_eq!(fs::read(&fetched[0].path).unwrap(), content());
}

#[test]
fn an_answer_without_a_length_is_held_against_the_published_one() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|asked, stream| {
        let count = if asked.number == 0 {
            50_000
        } else {
            content().len()
        };
        answer(stream, "200 OK", &content()[..count])
    });
    assert_eq!(
        fs::read(&get(&server, root.path()).unwrap()[0].path).unwrap(),
        content()
    );
    assert_eq!(server.ranges().len(), 2);
}

#[test]
fn a_damaged_file_is_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|asked, stream| {
        let mut damaged = content();
        damaged[12_345] ^= 4;
        serve(asked, stream, &damaged, "\"one\"", usize::MAX)
    });
    let error = get(&server, root.path()).unwrap_err();
    assert_eq!(error.class, Class::Data);
    let text = error.to_string();
    assert!(
        text.contains("instead of the published") && text.contains("--from"),
        "{text}"
    );
    assert!(names(root.path()).is_empty());
}

#[test]
fn damage_in_what_an_earlier_attempt_left_is_repaired() {
    let root = tempfile::tempdir().unwrap();
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", usize::MAX));
    fs::write(root.path().join("data.tar.gz.part"), vec![0; 1000]).unwrap();
    let origin = format!("{}/data.tar.gz\n\"one\"\n", server.address);
    fs::write(root.path().join("data.tar.gz.part.from"), origin).unwrap();
    assert_eq!(
        fs::read(&get(&server, root.path()).unwrap()[0].path).unwrap(),
        content()
    );
    assert_eq!(server.ranges(), ["bytes=1000-", ""]);
}

/// A process that was killed while it checked the file had received all of it.
#[test]
fn a_part_that_is_whole_is_not_fetched_again() {
    let root = tempfile::tempdir().unwrap();
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", usize::MAX));
    let lay = |bytes: &[u8]| {
        fs::write(root.path().join("data.tar.gz.part"), bytes).unwrap();
        let origin = format!("{}/data.tar.gz\n\"one\"\n{}\n", server.address, bytes.len());
        fs::write(root.path().join("data.tar.gz.part.from"), origin).unwrap();
    };
    let arrived = || fs::read(&get(&server, root.path()).unwrap()[0].path).unwrap();
    lay(&content());
    assert_eq!(arrived(), content());
    assert!(server.seen().is_empty(), "{:?}", server.ranges());
    // Damaged, it is fetched anew.
    fs::remove_file(root.path().join("data.tar.gz")).unwrap();
    lay(&vec![0; content().len()]);
    assert_eq!(arrived(), content());
    assert_eq!(server.ranges(), [""]);
}

#[test]
fn a_part_longer_than_the_file_starts_over() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|asked, stream| match asked.from() {
        0 => serve(asked, stream, &content(), "\"one\"", usize::MAX),
        _ => answer(stream, "416 Range Not Satisfiable", b""),
    });
    fs::write(root.path().join("data.tar.gz.part"), vec![0; 400_000]).unwrap();
    let origin = format!("{}/data.tar.gz\n\"one\"\n", server.address);
    fs::write(root.path().join("data.tar.gz.part.from"), origin).unwrap();
    assert_eq!(
        fs::read(&get(&server, root.path()).unwrap()[0].path).unwrap(),
        content()
    );
}

#[test]
fn refusals_are_final_and_failures_are_not() {
    let table: &[(&str, &[u8], &str, usize)] = &[
        ("404 Not Found", b"", "404 Not Found; name another copy", 1),
        ("403 Forbidden", b"", "403 Forbidden; name another copy", 1),
        (
            "500 Internal Server Error",
            b"",
            "500 Internal Server Error",
            3,
        ),
        ("429 Too Many Requests", b"", "429 Too Many Requests", 3),
        (
            "200 OK\r\nContent-Type: text/html\r\nContent-Length: 300000",
            b"<html>",
            "a web page instead of the file",
            1,
        ),
        (
            "200 OK\r\nContent-Length: 9",
            b"too small",
            "offers 9 bytes, the published file has 300000",
            1,
        ),
        (
            "200 OK\r\nContent-Length: 99000000000",
            b"",
            "offers 99,000,000,000 bytes",
            1,
        ),
        ("nonsense", b"", "", 3),
    ];
    for (head, body, problem, connections) in table {
        let root = tempfile::tempdir().unwrap();
        let server = Server::start(|_, stream| answer(stream, head, body));
        let error = get(&server, root.path()).expect_err(head);
        assert_eq!(error.class, Class::Data);
        let text = error.to_string();
        assert!(
            text.contains(problem) && text.contains(&server.address),
            "{head}: {text}"
        );
        assert_eq!(server.ranges().len(), *connections, "{head}");
        assert!(!root.path().join("data.tar.gz").exists());
    }
}

/// Tests a sign-in page or a message of the server under the name of the file, whatever type the
/// server declares.
#[test]
fn what_is_no_archive_is_not_kept() {
    for (body, told) in [
        (
            &b"<html>please sign in</html>"[..],
            "a web page (`<html>please sign in</html>`)",
        ),
        (b"\n<!DOCTYPE HTML PUBLIC>", "a web page"),
        (b"<?xml version='1.0'?><Error><Code>NoSuchKey", "XML"),
        (b"{\"message\": \"rate limit\"}", "JSON"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1",
            "Git LFS",
        ),
        (b"PAR1\x15\x04", "a parquet file"),
        (b"BZh91AY&SY", "bzip2"),
        (b"", "an empty file"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let raw = root.path().join("raw");
        let server = Server::start(|_, stream| {
            answer(
                stream,
                &format!("200 OK\r\nContent-Length: {}", body.len()),
                body,
            )
        });
        let remote = Remote {
            bytes: None,
            sha256: None,
            ..published(&format!("{}/data.tar.gz", server.address), &[]).0[0]
        };
        let file = root.path().join("file.tar.gz");
        fs::write(&file, body).unwrap();
        // A file that an earlier version kept is not an archive either.
        fs::create_dir(&raw).unwrap();
        let poisoned = raw.join("data.tar.gz");
        fs::write(&poisoned, b"<html>old page</html>").unwrap();
        let fetch = |origin| fetch(&Published([remote]), &raw, origin, &limits(), &());
        for origin in [
            Origin::Published,
            Origin::Mirror(&server.address),
            Origin::From(&format!("{}/copy.tar.gz", server.address)),
            Origin::From(file.to_str().unwrap()),
        ] {
            let error = fetch(origin).unwrap_err();
            assert_eq!(error.class, Class::Data);
            let text = error.to_string();
            assert!(
                text.contains("is not an archive but") && text.contains(told),
                "{text}"
            );
            assert_eq!(names(&raw), ["data.tar.gz"], "{text}");
            assert_eq!(fs::read(&poisoned).unwrap(), b"<html>old page</html>");
        }
    }
}

#[test]
fn a_page_that_was_kept_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", usize::MAX));
    fs::write(root.path().join("data.tar.gz"), b"<html>old page</html>").unwrap();
    let remote = Remote {
        bytes: None,
        sha256: None,
        ..published(&format!("{}/data.tar.gz", server.address), &[]).0[0]
    };
    let task = Published([remote]);
    let fetched = fetch(&task, root.path(), Origin::Published, &limits(), &()).unwrap();
    assert!(!fetched[0].kept);
    assert_eq!(fs::read(&fetched[0].path).unwrap(), content());
}

/// Checks that an archive without a published SHA-256 is read to its end before it is kept.
#[test]
fn a_cut_archive_is_not_kept_where_no_sum_is_published() {
    let root = tempfile::tempdir().unwrap();
    let raw = root.path().join("raw");
    let cut = content()[..100_000].to_vec();
    let sent = cut.clone();
    let server = Server::start(move |asked, stream| match asked.path.as_str() {
        "/whole/data.tar.gz" => serve(asked, stream, &content(), "\"one\"", usize::MAX),
        "/gone/data.tar.gz" => answer(stream, "404 Not Found", b""),
        _ => serve(asked, stream, &sent, "\"one\"", usize::MAX),
    });
    let remote = Remote {
        bytes: None,
        sha256: None,
        ..published(&format!("{}/data.tar.gz", server.address), &[]).0[0]
    };
    let fetch = |origin| fetch(&Published([remote]), &raw, origin, &limits(), &());
    let file = root.path().join("file.tar.gz");
    fs::write(&file, &cut).unwrap();
    let address = |path: &str| format!("{}/{path}", server.address);
    let [copy, gone, whole] = ["copy.tar.gz", "gone", "whole"].map(address);
    for origin in [
        Origin::Published,
        Origin::Mirror(&server.address),
        Origin::From(&copy),
        Origin::From(file.to_str().unwrap()),
    ] {
        let error = fetch(origin).unwrap_err();
        assert_eq!(error.class, Class::Data);
        let text = error.to_string();
        assert!(text.contains("damaged or incomplete"), "{text}");
        assert!(names(&raw).is_empty(), "{text}");
    }
    // One that an earlier version kept is fetched anew.
    let kept = raw.join("data.tar.gz");
    fs::write(&kept, &cut).unwrap();
    let text = fetch(Origin::Mirror(&gone)).unwrap_err().to_string();
    assert!(
        text.contains("404 Not Found") && text.contains("it is still there: remove it"),
        "{text}"
    );
    assert!(!fetch(Origin::Mirror(&whole)).unwrap()[0].kept);
    assert_eq!(fs::read(&kept).unwrap(), content());
    assert!(fetch(Origin::Mirror(&whole)).unwrap()[0].kept);
}

/// A damaged archive of another task is not there already: it is replaced where it lies.
#[test]
fn a_damaged_archive_that_tasks_share_is_fetched_anew() {
    let root = tempfile::tempdir().unwrap();
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", usize::MAX));
    let kept = root.path().join("raw/listops/lra_release.gz");
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::write(&kept, &content()[..100_000]).unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lra"))
            .args(words)
            .arg("--data")
            .arg(root.path())
            .env("NO_PROXY", "127.0.0.1")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = run(&["data", "make", "listops", "--source", "official"]);
    let remedy = format!("remove {}, and fetch", kept.display());
    assert!(code == Some(3) && said.contains(&remedy), "{said}");
    let fetch = ["data", "fetch", "pathfinder", "--mirror", &server.address];
    let (code, said) = run(&fetch);
    assert!(
        code == Some(0) && said.contains("no SHA-256 is published"),
        "{said}"
    );
    assert_eq!(fs::read(&kept).unwrap(), content());
    assert!(!root.path().join("raw/pathfinder").exists(), "{said}");
    let (code, said) = run(&fetch);
    assert!(code == Some(0) && said.contains("there already"), "{said}");
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_silent_server_is_left() {
    let root = tempfile::tempdir().unwrap();
    let kept = Mutex::new(Vec::new());
    let server = Server::start(move |asked, stream| {
        let bytes = if asked.number == 0 { 1000 } else { usize::MAX };
        serve(asked, stream, &content(), "\"one\"", bytes)?;
        // Never closed by this side: only the client's own limit ends the first connection.
        kept.lock().unwrap().push(stream.try_clone()?);
        Ok(())
    });
    let fetched = get(&server, root.path()).unwrap();
    assert_eq!(fs::read(&fetched[0].path).unwrap(), content());
    assert_eq!(server.ranges(), ["", "bytes=1000-"]);
}

/// Tests silence before the first byte of a response.
#[test]
fn a_server_that_never_answers_is_left() {
    let root = tempfile::tempdir().unwrap();
    let kept = Mutex::new(Vec::new());
    let server = Server::start(move |_, stream| {
        kept.lock().unwrap().push(stream.try_clone()?);
        Ok(())
    });
    let error = get(&server, root.path()).unwrap_err().to_string();
    assert!(error.contains("timeout"), "{error}");
    assert_eq!(server.ranges().len(), 3);
}

#[test]
fn redirections_are_followed_but_not_for_ever() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|asked, stream| match asked.path.as_str() {
        "/data.tar.gz" => answer(
            stream,
            "302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0",
            b"",
        ),
        _ => serve(asked, stream, &content(), "\"one\"", usize::MAX),
    });
    assert_eq!(
        fs::read(&get(&server, root.path()).unwrap()[0].path).unwrap(),
        content()
    );

    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|_, stream| {
        answer(
            stream,
            "302 Found\r\nLocation: /data.tar.gz\r\nContent-Length: 0",
            b"",
        )
    });
    let error = get(&server, root.path()).unwrap_err().to_string();
    assert!(error.contains("redirect"), "{error}");
    assert_eq!(server.ranges().len(), 4);
}

#[test]
fn an_endless_answer_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|_, stream| {
        answer(stream, "200 OK", &content())?;
        loop {
            stream.write_all(&[0; 10_000])?;
        }
    });
    let from = format!("{}/x.tar.gz", server.address);
    let error = fetch(
        &published("http://unused", &[]),
        root.path(),
        Origin::From(&from),
        &limits(),
        &(),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("more than 1,000,000 bytes came"),
        "{error}"
    );
    assert!(names(root.path()).is_empty());
}

#[test]
fn from_another_address_or_a_file() {
    let root = tempfile::tempdir().unwrap();
    let raw = root.path().join("raw");
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", usize::MAX));
    let copy = root.path().join("copy.tar.gz");
    fs::write(&copy, content()).unwrap();
    for from in [
        format!("{}/mirror/other-name.tar.gz?download=1", server.address),
        copy.display().to_string(),
    ] {
        for (bytes, same) in [(content(), true), (b"another edition".to_vec(), false)] {
            let fetched = fetch(
                &published("http://unused", &bytes),
                &raw,
                Origin::From(&from),
                &limits(),
                &(),
            )
            .unwrap();
            assert_eq!(fetched[0].path, raw.join("data.tar.gz"));
            assert_eq!(fetched[0].published, Some(same), "{from}");
            assert_eq!(fs::read(&fetched[0].path).unwrap(), content());
        }
    }
    let error = |from: &str| {
        fetch(
            &published("http://unused", &[]),
            &raw,
            Origin::From(from),
            &limits(),
            &(),
        )
        .unwrap_err()
        .to_string()
    };
    assert!(error(root.path().to_str().unwrap()).contains("is not a regular file"));
    assert!(error("nowhere.tar.gz").contains("cannot read nowhere.tar.gz"));
    assert_eq!(names(&raw), ["data.tar.gz"]);
}

#[test]
fn a_task_without_published_files_says_how_to_make_them() {
    let root = tempfile::tempdir().unwrap();
    let toy = datasets::tasks::find("toy").unwrap();
    let error = fetch(toy, root.path(), Origin::Published, &limits(), &()).unwrap_err();
    assert_eq!(error.class, Class::Usage);
    assert!(error.to_string().contains("lra data make toy"), "{error}");
}

#[test]
fn two_at_once_do_not_mix() {
    let root = tempfile::tempdir().unwrap();
    let part = fs::File::create(root.path().join("data.tar.gz.part")).unwrap();
    part.lock().unwrap();
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", usize::MAX));
    let error = get(&server, root.path()).unwrap_err().to_string();
    assert!(error.contains("another process is fetching"), "{error}");
}

#[test]
fn copies_that_a_killed_process_left_are_removed_and_those_at_work_are_not() {
    let root = tempfile::tempdir().unwrap();
    let raw = root.path().join("raw");
    fs::create_dir(&raw).unwrap();
    let (left, at_work) = (raw.join("left.copy"), raw.join("at-work.copy"));
    fs::write(&left, "half").unwrap();
    let locked = fs::File::create(&at_work).unwrap();
    locked.lock().unwrap();
    let from = root.path().join("data.tar.gz");
    fs::write(&from, content()).unwrap();
    let task = published("http://no-such-host.invalid/data.tar.gz", &content());
    let from = from.to_str().unwrap();
    let copy = || fetch(&task, &raw, Origin::From(from), &limits(), &());
    copy().unwrap();
    assert!(!left.exists() && at_work.exists());
    assert_eq!(fs::read(raw.join("data.tar.gz")).unwrap(), content());

    let own = fs::File::create(raw.join("data.tar.gz.copy")).unwrap();
    own.lock().unwrap();
    let error = copy().unwrap_err().to_string();
    assert!(error.contains("another process is fetching"), "{error}");
}

/// Records the progress reported to it.
#[derive(Default)]
struct Sum(Mutex<(Option<u64>, u64)>);

impl Progress for Sum {
    fn begin(&self, what: &str, total: Option<u64>) {
        if what.starts_with("fetching") {
            *self.0.lock().unwrap() = (total, 0);
        }
    }
    fn advance(&self, by: u64) {
        self.0.lock().unwrap().1 += by;
    }
    fn finish(&self) {}
}

#[test]
fn progress_counts_what_is_there_already() {
    let root = tempfile::tempdir().unwrap();
    let server =
        Server::start(|asked, stream| serve(asked, stream, &content(), "\"one\"", 200_000));
    let sum = Sum::default();
    let task = published(&format!("{}/data.tar.gz", server.address), &content());
    fetch(&task, root.path(), Origin::Published, &limits(), &sum).unwrap();
    // The file, and then the same bytes once more for its SHA-256.
    assert_eq!(*sum.0.lock().unwrap(), (Some(300_000), 600_000));
}

/// Runs the program behind a proxy, in a process of its own, because environment variables are per
/// process.
fn behind(proxy: &str, from: &str, data: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lra"));
    for name in ["ALL_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .args(["data", "fetch", "text", "--from", from, "--data"])
        .arg(data)
        .env("HTTP_PROXY", proxy)
        .output()
        .unwrap()
}

#[test]
fn a_proxy_is_asked_for_whole_addresses() {
    let server = Server::start(|asked, stream| match asked.path.as_str() {
        "http://no-such-host.invalid/data.tar.gz?x=1" => answer(
            stream,
            "302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0",
            b"",
        ),
        "http://no-such-host.invalid/elsewhere" => {
            serve(asked, stream, &content(), "\"one\"", usize::MAX)
        }
        _ => answer(stream, "404 Not Found", b""),
    });
    let address = server.address.trim_start_matches("http://");
    for (user, authorization) in [("", ""), ("me:secret@", "Basic bWU6c2VjcmV0")] {
        let data = tempfile::tempdir().unwrap();
        let proxy = format!("http://{user}{address}");
        let output = behind(
            &proxy,
            "http://no-such-host.invalid/data.tar.gz?x=1",
            data.path(),
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let file = data.path().join("raw/text/aclImdb_v1.tar.gz");
        assert_eq!(fs::read(file).unwrap(), content());
        let last = server.seen().pop().unwrap();
        assert_eq!(last.header("host"), "no-such-host.invalid");
        assert_eq!(last.header("proxy-authorization"), authorization);
    }
}

#[test]
fn secure_addresses_are_tunnelled() {
    let server = Server::start(|_, stream| answer(stream, "403 Forbidden", b""));
    let data = tempfile::tempdir().unwrap();
    let from = "https://no-such-host.invalid/data.tar.gz";
    let output = behind(&server.address, from, data.path());
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("proxy server responded 403"), "{said}");
    assert_eq!(server.seen()[0].path, "no-such-host.invalid:443");
}

/// Nothing would read the file.
#[test]
fn a_task_that_reads_no_files_has_nothing_to_fetch() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("any.tar.gz"), "any").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lra"))
        .args(["data", "fetch", "mqar", "--from"])
        .arg(root.path().join("any.tar.gz"))
        .arg("--data")
        .arg(root.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("mqar: this task reads no files"), "{said}");
    assert!(!root.path().join("raw").exists());
}
