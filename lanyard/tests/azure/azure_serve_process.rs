//! A local Azure in its own process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A `lanyard azure serve` process, which is killed with SIGKILL when it is dropped.
pub(crate) struct AzureServeProcess {
    child: Child,
    session: Value,
}

impl AzureServeProcess {
    /// Starts the program with its state in `state`.
    pub(crate) fn start(lanyard: Command, state: &Path) -> Self {
        Self::start_with(lanyard, state, &[])
    }

    /// Starts the program with its state in `state` and further arguments.
    pub(crate) fn start_with(mut lanyard: Command, state: &Path, arguments: &[&str]) -> Self {
        let mut child = lanyard
            .args(["azure", "serve", "--listen", "127.0.0.1:0", "--output", "json", "--state"])
            .arg(state)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let session = serde_json::from_str(&line).unwrap();
        Self { child, session }
    }

    /// A text field of the session that the process prints at its start.
    pub(crate) fn session_text(&self, key: &str) -> String {
        self.session[key].as_str().unwrap().to_owned()
    }
}

impl Drop for AzureServeProcess {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
