//! `lanyard up` without `--once`: what its requests were, and that nothing is left behind.

#![cfg(feature = "emulator")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

/// A `lanyard up` that stays up.
struct StayingUp {
    child: Child,
    stderr: BufReader<ChildStderr>,
    report: Value,
    exports: BTreeMap<String, String>,
}

impl StayingUp {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lanyard"))
            .args(["up", "--output", "json", "--directory"])
            .arg(directory)
            .env_remove("HTTPS_PROXY")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // The document ends with the brace in the first column.
        let mut document = String::new();
        for line in stdout.lines() {
            let line = line.unwrap();
            document.push_str(&line);
            if line == "}" {
                break;
            }
        }
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut exports = BTreeMap::new();
        loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended before its exports");
            if line.starts_with("unset ") {
                break;
            }
            if let Some((name, value)) =
                line.strip_prefix("export ").and_then(|rest| rest.split_once('='))
            {
                exports.insert(name.to_owned(), value.trim_end().trim_matches('\'').to_owned());
            }
        }
        Self { child, stderr, report: serde_json::from_str(&document).unwrap(), exports }
    }

    /// Runs `lanyard credential check` as another program of this machine would.
    fn check(&self, file: &Path, call: &str) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_lanyard"))
            .args(["credential", "check", "--call", call])
            .arg(file)
            .envs(&self.exports)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    /// GET of a path of the control API.
    fn control(&self, path: &str) -> Value {
        let control = self.exports["LANYARD_AZURE_CONTROL"].trim_start_matches("http://");
        let (address, base) = control.split_once('/').unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "GET /{base}/{path} HTTP/1.1\r\nhost: {address}\r\nx-lanyard-control: 1\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (_, body) = reply.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Asks for the end as a supervisor would, and waits for it.
    fn terminate(mut self) -> (Option<i32>, String) {
        self.ask_to_end();
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }

    fn ask_to_end(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

/// A test that fails leaves no process and no mount behind either.
impl Drop for StayingUp {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.ask_to_end();
            self.child.wait().unwrap();
        }
    }
}

fn mounted_below(directory: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(directory.to_str().unwrap())
}

fn count(entries: &[Value], matches: impl Fn(&Value) -> bool) -> usize {
    entries.iter().filter(|entry| matches(entry)).count()
}

#[test]
fn the_ledger_shows_each_hop_over_tls_and_one_token_of_the_vault_reader() {
    let directory = tempfile::tempdir().unwrap();
    let up = StayingUp::start(directory.path());
    assert_eq!(up.report["ok"], true, "{}", up.report);

    let world = up.control("world");
    let ledger = up.control("ledger");
    let entries = ledger["value"].as_array().unwrap();
    assert_eq!(count(entries, |entry| entry["service"] == "imds"), 1, "one token for all nine");

    let clients: BTreeMap<&str, &str> = world["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["component"].as_str().unwrap(), row["clientId"].as_str().unwrap()))
        .collect();
    assert_eq!(clients.len(), 9);
    for (component, client) in clients {
        let by = |service: &str, granted: bool| {
            count(entries, |entry| {
                entry["caller"] == client
                    && entry["service"] == service
                    && entry["tls"] == true
                    && (entry["status"] == 200) == granted
            })
        };
        assert_eq!(by("entra", true), 1, "{component}: one token");
        let granted = by("arm", true) + by("key-vault", true);
        let refused = by("arm", false) + by("key-vault", false);
        assert_eq!((granted, refused), (1, 1), "{component}: one granted and one refused call");
    }
    let reads = count(entries, |entry| {
        entry["service"] == "key-vault"
            && entry["status"] == 200
            && entry["tls"] == true
            && entry["path"].as_str().unwrap().starts_with("/secrets/")
    });
    assert_eq!(reads, 9, "one vault read for each component");
    let plain = count(entries, |entry| {
        entry["tls"] == false && !["imds", "control"].contains(&entry["service"].as_str().unwrap())
    });
    assert_eq!(plain, 0, "everything but IMDS comes over TLS");
    for marker in ["eyJ", "LS0t", "PRIVATE"] {
        assert!(!ledger.to_string().contains(marker), "{marker} in the ledger");
    }

    let (code, _) = up.terminate();
    assert_eq!(code, Some(0));
}

#[test]
fn a_mounted_file_is_checked_down_to_a_granted_and_a_refused_call() {
    let directory = tempfile::tempdir().unwrap();
    let up = StayingUp::start(directory.path());
    let file = directory
        .path()
        .join("azure-cloud-controller-manager/cloud-provider-cert/harbour-cloud-provider");
    let group = "https://management.azure.com/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups";
    let network = "providers/Microsoft.Network";

    let balancer = "harbour-harbour-7kq2m";
    let granted =
        format!("{group}/{balancer}/{network}/loadBalancers/harbour-7kq2m?api-version=2023-11-01");
    let (code, report) = up.check(&file, &granted);
    assert_eq!(code, Some(0), "{report}");
    for expected in ["client_id", "RSA 2048 bits", "expires", "renew after", "200", "good"] {
        assert!(report.contains(expected), "{expected} is not in\n{report}");
    }
    assert!(!report.contains("PRIVATE") && !report.contains("LS0t"), "{report}");

    let vnet = "harbour-vnet-harbour-7kq2m";
    let refused = format!(
        "{group}/{vnet}/{network}/virtualNetworks/harbour-harbour-7kq2m?api-version=2023-11-01"
    );
    let (code, report) = up.check(&file, &refused);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("AuthorizationFailed"), "{report}");
    assert!(report.contains("Microsoft.Network/virtualNetworks/read"), "{report}");
    assert!(report.contains("hint: assign a role"), "{report}");
    assert_eq!(up.terminate().0, Some(0));
}

#[test]
fn an_end_leaves_no_mount_and_no_directory_behind() {
    let directory = tempfile::tempdir().unwrap();
    let up = StayingUp::start(directory.path());
    assert!(std::fs::read_dir(directory.path()).unwrap().count() > 0);
    let (code, rest) = up.terminate();
    assert_eq!(code, Some(0), "{rest}");
    assert!(!mounted_below(directory.path()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
