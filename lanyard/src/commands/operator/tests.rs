use std::time::Duration;

use clap::Parser;
use lanyard_desired::forecast::{PropagationDelay, RenewalPolicy};
use lanyard_desired::objects::VolumeRefresh;
use lanyard_operator::OperatorRole;
use lanyard_vocabulary::Component;

use super::flags::OperatorArgs;
use super::settings::resolve_settings;

#[derive(Debug, Parser)]
struct OperatorArgsParser {
    #[command(flatten)]
    args: OperatorArgs,
}

fn parse_args(line: &[&str]) -> OperatorArgs {
    OperatorArgsParser::try_parse_from(["operator"].iter().chain(line)).unwrap().args
}

#[test]
fn leader_election_requires_a_lease_namespace() {
    let error = resolve_settings(&parse_args(&["--lease-duration=2s", "--lease-namespace="]), 1)
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("--lease-namespace is missing"), "{text}");
    assert!(text.contains("--lease-duration: give 6 s or more"), "{text}");
    assert!(text.contains("--leader-elect=false"), "{text}");
    let alone = resolve_settings(&parse_args(&["--leader-elect=false"]), 1).unwrap();
    assert_eq!(alone.leases, None);
    let divided = parse_args(&["--leader-elect=false", "--shards=2"]);
    assert!(resolve_settings(&divided, 1).unwrap_err().to_string().contains("--shards"));
}

#[test]
fn service_account_has_a_namespace() {
    let account = |line: &[&str]| {
        let line = [&["--leader-elect=false"][..], line].concat();
        resolve_settings(&parse_args(&line), 1).unwrap().service_account
    };
    assert_eq!(account(&[]), None);
    let given = account(&["--service-account=lanyard/lanyard-operator"]).unwrap();
    assert_eq!((given.namespace(), given.name()), ("lanyard", "lanyard-operator"));
    let without = ["operator", "--service-account=lanyard-operator"];
    let error = OperatorArgsParser::try_parse_from(without).unwrap_err().to_string();
    assert!(error.contains("`<namespace>/<name>`"), "{error}");
}

#[test]
fn lease_duration_is_in_whole_seconds() {
    let with = |duration: &str| {
        let flag = format!("--lease-duration={duration}");
        resolve_settings(&parse_args(&["--lease-namespace=n", &flag]), 1)
    };
    for duration in ["7900ms", "6.5s", "1m0.001s"] {
        let text = with(duration).unwrap_err().to_string();
        assert!(text.contains("--lease-duration: give whole seconds"), "{duration}: {text}");
    }
    for (duration, seconds) in [("8000ms", 8), ("1m", 60)] {
        let leases = with(duration).unwrap().leases.unwrap();
        assert_eq!(leases.duration, Duration::from_secs(seconds), "{duration}");
    }
}

#[test]
fn lease_names_are_dns_subdomains() {
    let named = |name: &str| {
        resolve_settings(&parse_args(&["--lease-namespace=n", &format!("--lease-name={name}")]), 1)
    };
    let longest = "x".repeat(63);
    for name in ["lanyard", "lanyard.prod-lanyard-operator", "0", &longest] {
        assert_eq!(named(name).unwrap().leases.unwrap().name, name);
    }
    let longer = "x".repeat(64);
    for name in ["", ".", "a..b", "-a", "a-", "a.-b", "A", "a_b", &longer] {
        let text = named(name).unwrap_err().to_string();
        assert!(text.contains(&format!("--lease-name: `{name}`")), "{text}");
    }
}

#[test]
fn lease_identity_is_unique_per_process_and_a_valid_name() {
    let line = ["--lease-namespace=n", "--pod-name=Operator.7d9_x", "--shards=3"];
    let identity =
        |chance| resolve_settings(&parse_args(&line), chance).unwrap().leases.unwrap().identity;
    assert_eq!(identity(1), "perator7d9x-00000001");
    assert_ne!(identity(1), identity(2));
}

#[test]
fn flags_win_over_templates() {
    let mut line = vec!["--leader-elect=false", "--canary-image=i:1", "--role=identity-only"];
    line.extend(["--rotation=false", "--canary-host-network", "--canary-metrics-port=9000"]);
    let settings = resolve_settings(&parse_args(&line), 1).unwrap();
    let canary = &settings.templates.canary;
    assert_eq!(
        (canary.image.as_str(), canary.metrics_port, canary.host_network),
        ("i:1", 9000, true)
    );
    assert_eq!(
        (settings.role, settings.volume_refresh),
        (OperatorRole::IdentityOnly, VolumeRefresh::AtMount)
    );
    line.push("--canary-call=disk=");
    let calls = &resolve_settings(&parse_args(&line), 1).unwrap().templates.canary.calls;
    assert_eq!(calls.get(&Component::Disk).map(String::as_str), Some(""));
}

#[test]
fn rotation_flags_determine_the_forecast_policy() {
    let line = ["--leader-elect=false"];
    assert_eq!(resolve_settings(&parse_args(&line), 1).unwrap().policy, RenewalPolicy::default());
    let hourly =
        ["--leader-elect=false", "--rotation-poll-interval=1h", "--renewal-grace-period=7d"];
    let policy = resolve_settings(&parse_args(&hourly), 1).unwrap().policy;
    assert_eq!(
        policy.propagation_delay,
        PropagationDelay::for_node_plugin(Duration::from_hours(1))
    );
    assert_eq!(policy.grace_period, Duration::from_hours(7 * 24));
    let driver = [&hourly[..2], &["--secrets-store-driver"]].concat();
    let reach = resolve_settings(&parse_args(&driver), 1).unwrap().policy.propagation_delay;
    assert_eq!(reach, PropagationDelay::for_secrets_store_driver(Duration::from_hours(1)));
}

#[test]
fn every_problem_of_a_template_file_is_reported() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "canary: {imag: x, replicas: many}").unwrap();
    let path = format!("--templates={}", file.path().display());
    let error =
        resolve_settings(&parse_args(&["--leader-elect=false", &path]), 1).unwrap_err().to_string();
    assert!(error.contains("imag") && error.contains("replicas"), "{error}");
}

#[test]
fn canary_flags_are_validated_like_the_template_file() {
    for (flag, field) in [
        ("--canary-metrics-port=0", "canary.metricsPort"),
        ("--canary-metrics-port=8095", "canary.metricsPort"),
        ("--canary-image=", "canary.image"),
        ("--canary-call=disk=foo", "canary.calls.disk"),
    ] {
        let error = resolve_settings(&parse_args(&["--leader-elect=false", flag]), 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains(field), "{error}");
    }
}
