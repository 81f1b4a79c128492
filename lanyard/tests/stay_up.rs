//! `lanyard up` without `--once`: what its requests were, and that nothing is left behind.

#![cfg(feature = "emulator")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use self::staying_up::StayingUp;

#[path = "support/staying_up.rs"]
mod staying_up;

/// Runs `lanyard credential check` as another program of this machine would.
fn check(up: &StayingUp, file: &Path, call: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lanyard"))
        .args(["credential", "check", "--call", call])
        .arg(file)
        .envs(&up.exports)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
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
    let (code, report) = check(&up, &file, &granted);
    assert_eq!(code, Some(0), "{report}");
    for expected in ["client_id", "RSA 2048 bits", "expires", "renew after", "200", "good"] {
        assert!(report.contains(expected), "{expected} is not in\n{report}");
    }
    assert!(!report.contains("PRIVATE") && !report.contains("LS0t"), "{report}");

    let vnet = "harbour-vnet-harbour-7kq2m";
    let refused = format!(
        "{group}/{vnet}/{network}/virtualNetworks/harbour-harbour-7kq2m?api-version=2023-11-01"
    );
    let (code, report) = check(&up, &file, &refused);
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
