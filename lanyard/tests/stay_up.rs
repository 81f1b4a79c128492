//! Tests `lanyard up` without `--once`: its request log, and that it removes all mounts and directories.

#![cfg(feature = "emulator")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use self::up_process::UpProcess;

#[path = "support/up_process.rs"]
mod up_process;

/// Runs `lanyard credential check` as a separate process.
fn check_credential(up: &UpProcess, file: &Path, call: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lanyard"))
        .args(["credential", "check", "--call", call])
        .arg(file)
        .envs(up.exports())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn has_mounts_below(directory: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(directory.to_str().unwrap())
}

fn count_matching(entries: &[Value], matches: impl Fn(&Value) -> bool) -> usize {
    entries.iter().filter(|entry| matches(entry)).count()
}

#[test]
fn request_log_shows_each_hop_over_tls_and_one_vault_reader_token() {
    let directory = tempfile::tempdir().unwrap();
    let up = UpProcess::start(directory.path());
    assert_eq!(up.report["ok"], true, "{}", up.report);

    let azure = up.get_control("state");
    let log = up.get_control("request-log");
    let entries = log["value"].as_array().unwrap();
    assert_eq!(
        count_matching(entries, |entry| entry["service"] == "imds"),
        1,
        "one token for all nine"
    );

    let clients: BTreeMap<&str, &str> = azure["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["component"].as_str().unwrap(), row["clientId"].as_str().unwrap()))
        .collect();
    assert_eq!(clients.len(), 9);
    for (component, client) in clients {
        let by = |service: &str, granted: bool| {
            count_matching(entries, |entry| {
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
    let reads = count_matching(entries, |entry| {
        entry["service"] == "key-vault"
            && entry["status"] == 200
            && entry["tls"] == true
            && entry["path"].as_str().unwrap().starts_with("/secrets/")
    });
    assert_eq!(reads, 9, "one vault read for each component");
    let plain = count_matching(entries, |entry| {
        entry["tls"] == false && !["imds", "control"].contains(&entry["service"].as_str().unwrap())
    });
    assert_eq!(plain, 0, "everything but IMDS comes over TLS");
    for marker in ["eyJ", "LS0t", "PRIVATE"] {
        assert!(!log.to_string().contains(marker), "{marker} in the log");
    }

    let (code, _) = up.terminate();
    assert_eq!(code, Some(0));
}

#[test]
fn credential_check_of_mounted_file_reports_granted_and_refused_calls() {
    let directory = tempfile::tempdir().unwrap();
    let up = UpProcess::start(directory.path());
    let file = directory
        .path()
        .join("azure-cloud-controller-manager/cloud-provider-cert/harbour-cloud-provider");
    let group = "https://management.azure.com/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups";
    let network = "providers/Microsoft.Network";

    let balancer = "harbour-harbour-7kq2m";
    let granted =
        format!("{group}/{balancer}/{network}/loadBalancers/harbour-7kq2m?api-version=2023-11-01");
    let (code, report) = check_credential(&up, &file, &granted);
    assert_eq!(code, Some(0), "{report}");
    for expected in ["client_id", "RSA 2048 bits", "expires", "renew after", "200", "good"] {
        assert!(report.contains(expected), "{expected} is not in\n{report}");
    }
    assert!(!report.contains("PRIVATE") && !report.contains("LS0t"), "{report}");

    let vnet = "harbour-vnet-harbour-7kq2m";
    let refused = format!(
        "{group}/{vnet}/{network}/virtualNetworks/harbour-harbour-7kq2m?api-version=2023-11-01"
    );
    let (code, report) = check_credential(&up, &file, &refused);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("AuthorizationFailed"), "{report}");
    assert!(report.contains("Microsoft.Network/virtualNetworks/read"), "{report}");
    assert!(report.contains("hint: assign a role"), "{report}");
    assert_eq!(up.terminate().0, Some(0));
}

#[test]
fn azure_env_finds_the_running_up() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let in_directory = |mut command: Command| {
        command.env("TMPDIR", directory.path()).env("XDG_RUNTIME_DIR", runtime.path());
        command.env_remove("LANYARD_AZURE_CONTROL");
        command
    };
    let environment = |arguments: &[&str]| {
        let mut command = in_directory(Command::new(env!("CARGO_BIN_EXE_lanyard")));
        let output = command.args(["azure", "env"]).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, error) = environment(&[]);
    assert_eq!(code, Some(3), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "it writes nothing");
    assert_eq!(std::fs::read_dir(runtime.path()).unwrap().count(), 0, "it writes nothing");

    let start = || {
        let mut command = in_directory(Command::new(env!("CARGO_BIN_EXE_lanyard")));
        command.arg("up");
        UpProcess::start_command(command)
    };
    let first = start();
    let (code, exports, error) = environment(&[]);
    assert_eq!(code, Some(0), "{error}");
    let control =
        format!("export LANYARD_AZURE_CONTROL='{}'", first.exports()["LANYARD_AZURE_CONTROL"]);
    assert!(exports.contains(&control), "{control} is not in\n{exports}");
    let (_, fish, _) = environment(&["--shell", "fish"]);
    assert!(fish.starts_with("set -gx HTTPS_PROXY 'http://127.0.0.1:"), "{fish}");

    let second = start();
    let (code, _, error) = environment(&[]);
    assert_eq!(code, Some(2), "{error}");
    for up in [&first, &second] {
        assert!(error.contains(up.state.to_str().unwrap()), "{error}");
    }
    let mut drills = in_directory(Command::new(env!("CARGO_BIN_EXE_lanyard")));
    let drills = drills.args(["azure", "drill", "list", "-o", "json"]).output().unwrap();
    assert_eq!(drills.status.code(), Some(0), "several runs do not prevent the list");
    let drills: Value = serde_json::from_slice(&drills.stdout).unwrap();
    assert_eq!(drills["running"], Value::Null);
    for up in [first, second] {
        assert_eq!(up.terminate().0, Some(0));
    }
    let (code, unset, error) = environment(&["--unset"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(unset.starts_with("unset HTTPS_PROXY "), "{unset}");
    assert!(unset.contains(" LANYARD_AZURE_CONTROL") && !unset.contains("export"), "{unset}");
}

#[test]
fn credentials_of_a_healthy_run_have_no_warnings() {
    let directory = tempfile::tempdir().unwrap();
    let up = UpProcess::start(directory.path());
    let mut checked = 0;
    for deployment in std::fs::read_dir(directory.path()).unwrap() {
        let deployment = deployment.unwrap().path();
        let volumes = if deployment.is_dir() { std::fs::read_dir(deployment).ok() } else { None };
        for volume in volumes.into_iter().flatten() {
            let output = Command::new(env!("CARGO_BIN_EXE_lanyard"))
                .args(["credential", "check", "--offline"])
                .arg(volume.unwrap().path())
                .output()
                .unwrap();
            let report = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(0), "{report}");
            assert!(!report.contains("warning"), "{report}");
            checked += 1;
        }
    }
    assert_eq!(checked, 10, "KMS has two volumes");
    assert_eq!(up.terminate().0, Some(0));
}

#[test]
fn termination_removes_mounts_and_directories() {
    let directory = tempfile::tempdir().unwrap();
    let up = UpProcess::start(directory.path());
    assert!(std::fs::read_dir(directory.path()).unwrap().count() > 0);
    let (code, rest) = up.terminate();
    assert_eq!(code, Some(0), "{rest}");
    assert!(!has_mounts_below(directory.path()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A user with a home directory, in which `lanyard up` must leave no files.
struct TestUser {
    /// `None` for the user of this test process.
    id: Option<u32>,
    home: TempDir,
    lanyard: PathBuf,
}

impl TestUser {
    fn current() -> Self {
        let lanyard = PathBuf::from(env!("CARGO_BIN_EXE_lanyard"));
        Self { id: None, home: tempfile::tempdir().unwrap(), lanyard }
    }

    /// A user who may not mount; `None` if this test process cannot switch users.
    fn without_privileges() -> Option<Self> {
        if !is_root() || !["uid_map", "gid_map"].into_iter().all(maps_unprivileged_user) {
            return None;
        }
        // Only root may be able to enter the directories of `TMPDIR` and of the program.
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let lanyard = home.path().join("lanyard");
        // A separate process copies the program: a file that this process has open for writing cannot be
        // executed (`ETXTBSY`) while a child process of another test has inherited the descriptor.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_lanyard")).arg(&lanyard);
        assert!(copy.status().unwrap().success());
        chown(home.path(), Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER)).unwrap();
        Some(Self { id: Some(UNPRIVILEGED_USER), home, lanyard })
    }

    /// The `TMPDIR` of the user.
    fn temporary_directory(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    fn chosen_directory(&self) -> PathBuf {
        self.home.path().join("new").join("volumes")
    }

    fn up_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.lanyard);
        command.arg("up").args(arguments).env("TMPDIR", self.temporary_directory());
        if let Some(id) = self.id {
            command.uid(id).gid(id);
        }
        command
    }

    fn leftover_paths(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.temporary_directory()).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        left.extend(Some(self.home.path().join("new")).filter(|it| it.exists()));
        left
    }
}

const UNPRIVILEGED_USER: u32 = 65_534;

/// Whether the user namespace of this process maps [`UNPRIVILEGED_USER`] (`user_namespaces(7)`).
fn maps_unprivileged_user(map: &str) -> bool {
    let text = std::fs::read_to_string(Path::new("/proc/self").join(map)).unwrap();
    text.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap());
        let (first, _outside, count) =
            (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        (first..first + count).contains(&UNPRIVILEGED_USER.into())
    })
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn next_run_removes_volumes_and_directories_of_a_killed_run() {
    for user in [Some(TestUser::current()), TestUser::without_privileges()].into_iter().flatten() {
        std::fs::create_dir(user.temporary_directory()).unwrap();
        chown(user.temporary_directory(), user.id, user.id).unwrap();
        let chosen = user.chosen_directory();
        let chosen = ["--directory", chosen.to_str().unwrap()];
        for (killed, next) in [(&[][..], &[][..]), (&chosen, &chosen), (&chosen, &[])] {
            let mut up = UpProcess::start_command(user.up_command(killed));
            assert_eq!(up.report["ok"], true, "{}", up.report);
            let file = "azure-cloud-controller-manager/cloud-provider-cert/harbour-cloud-provider";
            let is_chosen = !killed.is_empty();
            assert_eq!(user.chosen_directory().join(file).exists(), is_chosen);
            up.child.kill().unwrap();
            up.child.wait().unwrap();
            assert_eq!(user.leftover_paths().len(), if is_chosen { 2 } else { 1 });
            let may_mount = user.id.is_none() && is_root();
            assert_eq!(has_mounts_below(user.home.path()), may_mount);

            let output = user.up_command(next).arg("--once").output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{stderr}");
            assert!(!has_mounts_below(user.home.path()), "{killed:?}, then {next:?}: {stderr}");
            assert_eq!(
                user.leftover_paths(),
                Vec::<PathBuf>::new(),
                "{killed:?}, then {next:?}: {stderr}"
            );
        }
    }
}

#[test]
fn second_run_in_one_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let up = UpProcess::start(directory.path());
    let output = Command::new(env!("CARGO_BIN_EXE_lanyard"))
        .args(["up", "--once", "--directory"])
        .arg(directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("another `lanyard up` has its volumes in"), "{stderr}");
    assert_eq!(up.terminate().0, Some(0));
}
