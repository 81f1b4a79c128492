use clap::{Args as _, Command, FromArgMatches};

use super::flags::NodeArgs;
use super::settings::NodeSettings;

pub(super) fn parse_node_args(arguments: &[&str]) -> Result<NodeArgs, clap::Error> {
    let command = NodeArgs::augment_args(Command::new("node"));
    let arguments = std::iter::once("node").chain(arguments.iter().copied());
    command.try_get_matches_from(arguments).and_then(|it| NodeArgs::from_arg_matches(&it))
}

/// The flags that the charts of the driver (v1.6.0) and of the provider (v1.8.2) set.
const UPSTREAM_FLAGS: [&str; 24] = [
    "--endpoint=unix:///csi/csi.sock",
    "--nodeid=node-1",
    "--drivername=secrets-store.csi.k8s.io",
    "--provider-volume=/var/run/secrets-store-csi-providers",
    "--additional-provider-volume-paths=/etc/kubernetes/secrets-store-csi-providers",
    "--metrics-addr=:8080",
    "--enable-secret-rotation=true",
    "--rotation-poll-interval=1h",
    "--provider-health-check=true",
    "--provider-health-check-interval=2m0s",
    "--max-call-recv-msg-size=4194304",
    "--log-format-json=true",
    "-v=5",
    "--kubeconfig=/etc/kubeconfig",
    "--construct-pem-chain=true",
    "--write-cert-and-key-in-separate-files=false",
    "--cloud-name=azureusgovernmentcloud",
    "--custom-user-agent=",
    "--healthz-port=8989",
    "--healthz-path=/healthz",
    "--healthz-timeout=5s",
    "--prometheus-port=8898",
    "--enable-pprof=true",
    "--pprof-port=6065",
];

#[test]
fn upstream_command_lines_are_accepted() {
    let args = parse_node_args(&UPSTREAM_FLAGS).unwrap();
    let settings = NodeSettings::resolve(&args).unwrap();
    assert_eq!(settings.server.node_id, "node-1");
    assert_eq!(settings.rotator.interval.unwrap().duration().as_secs(), 3600);
    assert_eq!(settings.health_address.to_string(), "127.0.0.1:8989");
    assert_eq!(args.http.metrics_addr.to_string(), ":8080");
    assert!(args.providers.provider_health_check.0 && args.logs.log_format_json.0);
    let noted = ["--enable-pprof", "--pprof-port", "--prometheus-port"];
    assert_eq!(args.ignored.given_flags(), noted);
}

#[test]
fn omitted_flags_have_safe_defaults() {
    let args = parse_node_args(&["--nodeid=n", "--kubeconfig=k"]).unwrap();
    let settings = NodeSettings::resolve(&args).unwrap();
    assert!(settings.rotator.interval.is_some());
    assert_eq!(args.http.metrics_addr.to_string(), "127.0.0.1:8095");
    assert!(!args.providers.pod_overrides_parameters.0);
    assert_eq!(settings.volume_content_limit, 32 << 20);
    assert_eq!(settings.volumes_memory_limit, None);
    let registration = settings.server.registration.unwrap();
    assert_eq!(registration.directory.to_str(), Some("/var/lib/kubelet/plugins_registry"));
    assert_eq!(registration.endpoint, settings.server.csi_socket);
    assert!(args.ignored.given_flags().is_empty());
}

#[test]
fn volumes_get_half_of_the_container_memory_by_default() {
    let limits = |flags: &[&str]| {
        let flags: Vec<_> = ["--nodeid=n"].iter().chain(flags).copied().collect();
        let settings = NodeSettings::resolve(&parse_node_args(&flags).unwrap()).unwrap();
        (settings.volumes_memory_limit, settings.memory_warning)
    };
    let (container, volumes) = ("--container-memory-limit=128Mi", "--volumes-memory-limit=100Mi");
    assert_eq!(limits(&[container]), (Some(64 << 20), None));
    assert_eq!(limits(&[container, volumes]), (Some(100 << 20), None));
    assert_eq!(limits(&[volumes]), (Some(100 << 20), None));
    let (limit, warning) = limits(&["--container-memory-limit=100Mi", volumes]);
    assert_eq!(limit, Some(50 << 20));
    let warning = warning.unwrap();
    assert!(
        warning.contains("100Mi leaves nothing") && warning.contains("using 50Mi"),
        "{warning}"
    );
}

#[test]
fn rotation_and_registration_can_be_disabled() {
    let flags = ["--nodeid=n", "--enable-secret-rotation=false", "--registration-dir="];
    let settings = NodeSettings::resolve(&parse_node_args(&flags).unwrap()).unwrap();
    assert!(settings.rotator.interval.is_none() && settings.server.registration.is_none());
}

#[test]
fn all_flag_problems_are_reported_together() {
    let flags = [
        "--kubelet-dir=var/lib/kubelet",
        "--healthz-path=readyz",
        "--azure-provider=socket",
        "--provider-socket=/providers/azure.sock",
    ];
    let error = NodeSettings::resolve(&parse_node_args(&flags).unwrap()).unwrap_err().to_string();
    for part in ["--nodeid", "--kubelet-dir", "--healthz-path", "--provider-socket serves"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn paths_must_be_absolute_and_normalized() {
    for flag in [
        "--registration-dir=plugins_registry",
        "--cloud-env-dir=etc/kubernetes",
        "--kubelet-registration-path=/a/../csi.sock",
        "--additional-provider-volume-paths=/a,b",
        "--endpoint=unix:///a/../csi.sock",
    ] {
        let args = parse_node_args(&["--nodeid=n", flag]).unwrap();
        let error = NodeSettings::resolve(&args).unwrap_err().to_string();
        let (name, _) = flag.split_once('=').unwrap();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn conflicting_flags_are_refused() {
    for flags in [
        ["--classes=a", "--kubeconfig=b"],
        ["--stale-cache-dir=/a", "--nodeid=n"],
        ["--endpoint=tcp://127.0.0.1:1", "--nodeid=n"],
        ["--drivername=../x", "--nodeid=n"],
        ["--rotation-poll-interval=soon", "--nodeid=n"],
        ["--volumes-memory-limit=0", "--nodeid=n"],
        ["--volume-content-limit=", "--nodeid=n"],
    ] {
        assert!(parse_node_args(&flags).is_err(), "{flags:?}");
    }
}

#[test]
fn command_lines_of_the_chart_are_accepted() {
    let rendered = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/kubernetes/chart");
    let mut observed = 0;
    for entry in std::fs::read_dir(rendered).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".golden.yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut documents = text.split("---\n");
        let daemon_set = documents.find(|it| it.contains("\nkind: DaemonSet\n")).unwrap();
        let daemon_set: serde_json::Value = serde_saphyr::from_str(daemon_set).unwrap();
        let words = &daemon_set["spec"]["template"]["spec"]["containers"][0]["args"];
        let words: Vec<&str> =
            words.as_array().unwrap().iter().filter_map(serde_json::Value::as_str).collect();
        assert_eq!(words[0], "node", "{name}");
        // The kubelet replaces the variable by the limit in bytes.
        let words: Vec<_> =
            words.iter().map(|it| it.replace("$(CONTAINER_MEMORY_LIMIT)", "536870912")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let args = parse_node_args(&words[1..]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let settings = NodeSettings::resolve(&args);
        assert!(settings.is_ok(), "{name}: {:?}", settings.err());
        assert_eq!(args.ignored.given_flags(), [""; 0], "{name}");
        observed += 1;
    }
    assert!(observed >= 6, "{observed}");
}
