//! A `lanyard up` process that keeps running, for tests that inspect it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

/// A `lanyard up` process that keeps running.
pub(crate) struct UpProcess {
    pub(crate) child: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) report: Value,
    /// The directory that the printed `lanyard azure env` names.
    pub(crate) state: PathBuf,
    exports: OnceCell<BTreeMap<String, String>>,
}

impl UpProcess {
    pub(crate) fn start(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
        command.arg("up").arg("--directory").arg(directory);
        Self::start_command(command)
    }

    /// Starts this `lanyard up`, and waits until it keeps running.
    pub(crate) fn start_command(mut command: Command) -> Self {
        let mut child = command
            .args(["--output", "json"])
            .env_remove("HTTPS_PROXY")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // The JSON document ends with a brace in the first column.
        let mut document = String::new();
        for line in stdout.lines() {
            let line = line.unwrap();
            document.push_str(&line);
            if line == "}" {
                break;
            }
        }
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let state = loop {
            let mut line = String::new();
            let length = stderr.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "the process ended before it printed `lanyard azure env`");
            let rest = line.trim().strip_prefix("eval \"$(lanyard azure env --state '");
            if let Some(directory) = rest.and_then(|rest| rest.strip_suffix("')\"")) {
                break PathBuf::from(directory);
            }
        };
        let report = serde_json::from_str(&document).unwrap();
        Self { child, stderr, report, state, exports: OnceCell::new() }
    }

    /// The variables of the printed `lanyard azure env`.
    pub(crate) fn exports(&self) -> &BTreeMap<String, String> {
        self.exports.get_or_init(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_lanyard"))
                .args(["azure", "env", "--output", "json", "--state"])
                .arg(&self.state)
                .output()
                .unwrap();
            let variables: Value = serde_json::from_slice(&output.stdout).unwrap();
            serde_json::from_value(variables["set"].clone()).unwrap()
        })
    }

    /// Sends a GET request to the control API.
    pub(crate) fn get_control(&self, path: &str) -> Value {
        let (status, body) = self.control_request("GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Sends a request to the control API, and returns the status and the body of the response.
    pub(crate) fn control_request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let control = self.exports()["LANYARD_AZURE_CONTROL"].trim_start_matches("http://");
        let (address, base) = control.split_once('/').unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "{method} /{base}/{path} HTTP/1.1\r\nhost: {address}\r\nx-lanyard-control: 1\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub(crate) fn terminate(mut self) -> (Option<i32>, String) {
        self.send_sigterm();
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }

    fn send_sigterm(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

/// Stops the process, so that a failed test leaves no process and no mount behind.
impl Drop for UpProcess {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.send_sigterm();
            self.child.wait().unwrap();
        }
    }
}
