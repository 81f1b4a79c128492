//! Chromium, controlled by the DevTools protocol over pipes.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thiserror::Error;

use crate::file_error::FileError;

/// The longest time for one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time for a condition of [`Browser::wait_until`], in milliseconds.
const CONDITION_MILLISECONDS: u32 = 10_000;

/// The browser could not be started or controlled.
#[derive(Debug, Error)]
pub(crate) enum BrowserError {
    #[error("`{}` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the browser does not read its commands")]
    Send(#[source] std::io::Error),
    #[error("the browser did not answer `{method}`")]
    NoAnswer {
        method: &'static str,
        #[source]
        source: mpsc::RecvTimeoutError,
    },
    #[error("`{method}` failed: {message}")]
    Command { method: &'static str, message: String },
    #[error("the condition did not hold: {condition}")]
    Condition { condition: String },
    #[error(transparent)]
    File(#[from] FileError),
}

/// A value of `prefers-color-scheme`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColorScheme {
    Light,
    Dark,
}

impl ColorScheme {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// A browser with one page. Dropping it kills the process.
pub(super) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    /// The session of the page.
    session: Option<String>,
    errors: Vec<String>,
}

impl Browser {
    /// Starts the program with an empty profile, and opens a page.
    pub(super) fn start(program: &Path, profile: &Path) -> Result<Self, BrowserError> {
        let failed = |source| BrowserError::Start { program: program.to_path_buf(), source };
        // The browser reads commands from file descriptor 3 and writes answers to 4.
        let script = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            // The sandbox needs privileges that containers lack. The browser loads only the local page.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(ErrorKind::BrokenPipe.into()));
        };
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { child, commands, messages, last_id: 0, session: None, errors: Vec::new() };
        browser.open_session()?;
        Ok(browser)
    }

    fn open_session(&mut self) -> Result<(), BrowserError> {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", &attach)?;
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for method in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.call(method, &json!({}))?;
        }
        Ok(())
    }

    /// Sends a command and returns its result.
    fn call(&mut self, method: &'static str, parameters: &Value) -> Result<Value, BrowserError> {
        self.last_id += 1;
        let mut command = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let sent = write!(self.commands, "{command}\0").and_then(|()| self.commands.flush());
        sent.map_err(BrowserError::Send)?;
        loop {
            let no_answer = |source| BrowserError::NoAnswer { method, source };
            let message = self.messages.recv_timeout(COMMAND_TIMEOUT).map_err(no_answer)?;
            if message["id"].as_u64() != Some(self.last_id) {
                self.errors.extend(reported_error(&message));
                continue;
            }
            if let Some(message) = message["error"]["message"].as_str() {
                return Err(BrowserError::Command { method, message: message.to_owned() });
            }
            return Ok(message["result"].clone());
        }
    }

    /// The errors that the page reported: exceptions, and violations of its content security policy.
    pub(super) fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Loads a page.
    pub(super) fn open(&mut self, url: &str) -> Result<(), BrowserError> {
        // A URL that differs only in its fragment would not load again.
        self.call("Page.navigate", &json!({ "url": "about:blank" }))?;
        let navigated = self.call("Page.navigate", &json!({ "url": url }))?;
        match navigated["errorText"].as_str() {
            Some(message) => {
                let message = message.to_owned();
                Err(BrowserError::Command { method: "Page.navigate", message })
            }
            None => self.wait_until("location.protocol === 'http:'"),
        }
    }

    /// Evaluates an expression in the page, and waits for the promise if that is the result.
    pub(super) fn evaluate(&mut self, expression: &str) -> Result<Value, BrowserError> {
        let method = "Runtime.evaluate";
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call(method, &parameters)?;
        if let Some(details) = result.get("exceptionDetails") {
            let message = details["exception"]["description"].as_str().unwrap_or("an exception");
            return Err(BrowserError::Command { method, message: message.to_owned() });
        }
        Ok(result["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub(super) fn wait_until(&mut self, condition: &str) -> Result<(), BrowserError> {
        let wait = format!(
            "new Promise((resolve) => {{ \
               const end = performance.now() + {CONDITION_MILLISECONDS}; \
               const check = () => {condition} ? resolve(true) \
                 : performance.now() > end ? resolve(false) : setTimeout(check, 20); \
               check(); }})"
        );
        if self.evaluate(&wait)? == json!(true) {
            return Ok(());
        }
        Err(BrowserError::Condition { condition: condition.to_owned() })
    }

    /// Presses and releases a key, such as `ArrowDown`.
    pub(super) fn press(&mut self, key: &'static str) -> Result<(), BrowserError> {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            _ => 40,
        };
        for kind in ["rawKeyDown", "keyUp"] {
            let event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", &event)?;
        }
        Ok(())
    }

    /// Sets the width of the window, in CSS pixels.
    pub(super) fn set_viewport(&mut self, width: u32) -> Result<(), BrowserError> {
        let metrics =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &metrics).map(drop)
    }

    pub(super) fn set_color_scheme(&mut self, scheme: ColorScheme) -> Result<(), BrowserError> {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme.name() });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] })).map(drop)
    }

    /// Writes what the window shows as PNG.
    pub(super) fn save_screenshot(&mut self, path: &Path) -> Result<(), BrowserError> {
        let method = "Page.captureScreenshot";
        let result = self.call(method, &json!({ "format": "png" }))?;
        let image = result["data"].as_str().and_then(|data| STANDARD.decode(data).ok());
        let image = image.ok_or_else(|| BrowserError::Command {
            method,
            message: "the answer contains no image".to_owned(),
        })?;
        Ok(std::fs::write(path, image).map_err(FileError::of("write", path))?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The process may have exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The error that an event reports.
fn reported_error(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    let text = match event["method"].as_str()? {
        "Runtime.exceptionThrown" => &parameters["exceptionDetails"]["exception"]["description"],
        "Log.entryAdded" if parameters["entry"]["level"] == "error" => &parameters["entry"]["text"],
        _ => return None,
    };
    Some(text.as_str().unwrap_or("an error without a description").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_and_error_entries_are_reported() {
        let exception = json!({ "method": "Runtime.exceptionThrown", "params": { "exceptionDetails": {
            "exception": { "description": "TypeError: x" } } } });
        assert_eq!(reported_error(&exception).as_deref(), Some("TypeError: x"));
        let entry = |level| {
            let entry = json!({ "level": level, "text": "refused" });
            json!({ "method": "Log.entryAdded", "params": { "entry": entry } })
        };
        assert_eq!(reported_error(&entry("error")).as_deref(), Some("refused"));
        assert_eq!(reported_error(&entry("info")), None);
        assert_eq!(reported_error(&json!({ "id": 1 })), None);
    }

    #[test]
    fn program_that_exits_gives_no_answer() {
        let profile = Path::new("/nonexistent");
        let error = Browser::start(Path::new("true"), profile).err().expect("it is no browser");
        assert!(matches!(error, BrowserError::NoAnswer { .. } | BrowserError::Send(_)), "{error}");
    }
}
