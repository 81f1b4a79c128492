use clap::Parser;
use lanyard_desired::objects::VolumeRefresh;
use lanyard_operator::Role;
use lanyard_vocabulary::Component;

use super::flags::OperatorArgs;
use super::settings::resolve;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: OperatorArgs,
}

fn args(line: &[&str]) -> OperatorArgs {
    Line::try_parse_from(["operator"].iter().chain(line)).unwrap().args
}

#[test]
fn replicas_that_share_need_a_namespace_and_a_single_one_needs_nothing() {
    let error = resolve(&args(&["--lease-duration=2s", "--lease-namespace="]), 1).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("--lease-namespace is missing"), "{text}");
    assert!(text.contains("--lease-duration: give 6 s or more"), "{text}");
    assert!(text.contains("--leader-elect=false"), "{text}");
    let alone = resolve(&args(&["--leader-elect=false"]), 1).unwrap();
    assert_eq!(alone.leases, None);
    let divided = args(&["--leader-elect=false", "--shards=2"]);
    assert!(resolve(&divided, 1).unwrap_err().to_string().contains("--shards"));
}

#[test]
fn every_process_has_an_identity_of_its_own_that_fits_into_a_name() {
    let line = ["--lease-namespace=n", "--pod-name=Operator.7d9_x", "--shards=3"];
    let identity = |chance| resolve(&args(&line), chance).unwrap().leases.unwrap().identity;
    assert_eq!(identity(1), "perator7d9x-00000001");
    assert_ne!(identity(1), identity(2));
}

#[test]
fn flags_win_over_templates() {
    let mut line = vec!["--leader-elect=false", "--canary-image=i:1", "--role=identity-only"];
    line.extend(["--rotation=false", "--canary-host-network", "--canary-metrics-port=9000"]);
    let settings = resolve(&args(&line), 1).unwrap();
    let canary = &settings.templates.canary;
    assert_eq!(
        (canary.image.as_str(), canary.metrics_port, canary.host_network),
        ("i:1", 9000, true)
    );
    assert_eq!((settings.role, settings.refresh), (Role::IdentityOnly, VolumeRefresh::AtMount));
    line.push("--canary-call=disk=");
    let calls = &resolve(&args(&line), 1).unwrap().templates.canary.calls;
    assert_eq!(calls.get(&Component::Disk).map(String::as_str), Some(""));
}

#[test]
fn every_problem_of_a_template_file_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "canary: {imag: x, replicas: many}").unwrap();
    let path = format!("--templates={}", file.path().display());
    let error = resolve(&args(&["--leader-elect=false", &path]), 1).unwrap_err().to_string();
    assert!(error.contains("imag") && error.contains("replicas"), "{error}");
}
