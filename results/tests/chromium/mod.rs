//! A headless Chromium: what it makes of a page, and what that looks like.

pub mod pictures;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use tiny_skia::Pixmap;

/// The settings under which a page is shown.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Name of its picture.
    pub name: &'static str,
    /// The part of the page to go to, such as `#runs`; empty to stay at its top.
    pub part: &'static str,
    /// Width of the window in pixels.
    pub width: u32,
    /// Height of the picture in pixels.
    pub height: u32,
    pub dark: bool,
    pub print: bool,
}

/// The browser, with a folder for its files.
pub struct Browser {
    program: &'static str,
    folder: TempDir,
}

impl Browser {
    /// Returns the first one that is installed. None is a failure: whoever asks for these tests
    /// wants them to run.
    pub fn find() -> Browser {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let installed = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        let program = names.into_iter().find(installed);
        let folder = tempfile::tempdir().unwrap();
        // Fonts differ between machines, and with them every line break.
        fs::write(folder.path().join("regular.ttf"), dejavu::sans::regular()).unwrap();
        fs::write(folder.path().join("bold.ttf"), dejavu::sans::bold()).unwrap();
        fs::write(folder.path().join("mono.ttf"), dejavu::sans_mono::regular()).unwrap();
        Browser {
            program: program.unwrap_or_else(|| panic!("none of {} is installed", names.join(", "))),
            folder,
        }
    }

    /// Returns the result of a script that runs in the page: the value of its last expression, as
    /// text.
    pub fn ask(&self, page: &str, look: Look, script: &str) -> String {
        let script = format!(
            "document.fonts.ready.then(() => {{ let said; try {{ said = (() => {{ {script} }})(); }} catch (error) {{ said = String(error); }} \
             parent.postMessage(said, '*'); }});"
        );
        let window = self.window(page, look, &script);
        let output = self.run(look, &["--dump-dom", "--virtual-time-budget=5000"], &window);
        let dom = String::from_utf8_lossy(&output.stdout);
        let said = dom
            .split_once("SAID:")
            .and_then(|(_, rest)| rest.split_once(":END"));
        let (said, _) = said.unwrap_or_else(|| panic!("{look:?}: {dom}"));
        said.replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&")
    }

    /// Returns a picture of the page.
    pub fn picture(&self, page: &str, look: Look) -> Pixmap {
        let window = self.window(page, look, "");
        let file = self.folder.path().join("picture.png");
        let option = format!("--screenshot={}", file.display());
        self.run(
            look,
            &[&option, "--hide-scrollbars", "--virtual-time-budget=5000"],
            &window,
        );
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        Pixmap::decode_png(&bytes).unwrap()
    }

    /// Returns the page on paper.
    pub fn pdf(&self, page: &str, look: Look) -> Vec<u8> {
        let source = self.folder.path().join("page.html");
        fs::write(&source, page).unwrap();
        let file = self.folder.path().join("page.pdf");
        self.run(
            look,
            &[&format!("--print-to-pdf={}", file.display())],
            &source,
        );
        fs::read(file).unwrap()
    }

    /// Returns a file with the page in a frame, as wide as is looked at: no window can be as narrow
    /// as a telephone. What the script in the page posts is written into the window.
    fn window(&self, page: &str, look: Look, script: &str) -> PathBuf {
        let fonts = "<style>@font-face { font-family: Same; src: url(regular.ttf); }\
                     @font-face { font-family: Same; font-weight: 600 900; src: url(bold.ttf); }\
                     @font-face { font-family: Mono; src: url(mono.ttf); }\
                     body, input, svg.chart { font-family: Same !important; }\
                     code, pre { font-family: Mono !important; }</style>";
        let mut page = page.replace("</head>", &format!("{fonts}</head>"));
        page = page.replace("</body>", &format!("<script>{script}</script></body>"));
        if look.print {
            // The styles for paper, on a screen.
            page = page
                .replace("@media screen and", "@media speech and")
                .replace("@media print", "@media screen");
        }
        fs::write(self.folder.path().join("page.html"), page).unwrap();
        let window = format!(
            "<!doctype html><style>body {{ margin: 0; overflow: hidden; }} \
             iframe {{ display: block; border: 0; width: {}px; height: {}px; }}</style>\
             <script>addEventListener('message', (event) => {{ document.body.textContent = 'SAID' + ':' + event.data + ':END'; }});</script>\
             <iframe src=\"page.html{}\"></iframe>",
            look.width, look.height, look.part
        );
        let file = self.folder.path().join("window.html");
        fs::write(&file, window).unwrap();
        file
    }

    fn run(&self, look: Look, options: &[&str], file: &Path) -> Output {
        let profile = tempfile::tempdir_in(self.folder.path()).unwrap();
        let output = Command::new(self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--force-device-scale-factor=1",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!(
                "--blink-settings=preferredColorScheme={}",
                u8::from(!look.dark)
            ))
            .arg(format!("--window-size={},{}", look.width, look.height))
            .args(options)
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{look:?}: {complaints}");
        output
    }
}
