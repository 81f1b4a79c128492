//! The configuration files of the components. JSON is used where YAML is expected: every JSON document is
//! valid YAML.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::certificates::CertificateWithKey;
use crate::plan::{ClusterContext, LocalClusterPlan};

/// The pause image. The start imports it from `images/`.
const PAUSE_IMAGE: &str = "localhost/lanyard/pause:1";

/// File names in the configuration directory.
pub(crate) const CONTAINERD_FILE: &str = "containerd.toml";
pub(crate) const KUBELET_FILE: &str = "kubelet.json";
pub(crate) const CNI_FILE: &str = "cni/10-pods.conflist";

/// containerd's configuration, in version 2 of the format, which containerd 1.x reads and 2.x migrates.
pub(crate) fn containerd_config(context: ClusterContext<'_>) -> String {
    let ClusterContext { plan, layout } = context;
    // A TOML basic string has the escapes of a JSON string.
    let quoted = |path: std::path::PathBuf| Value::from(path.to_string_lossy()).to_string();
    format!(
        r#"version = 2
root = {root}
state = {state}
disabled_plugins = [
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = {socket}

[plugins."io.containerd.internal.v1.opt"]
path = {opt}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
disable_apparmor = true
# Lowering the score needs a capability that a container may lack.
restrict_oom_score_adj = true
# The default is a directory that every containerd of the machine shares.
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc}
Root = {runc_root}
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins}
conf_dir = {networks}
"#,
        root = quoted(layout.containerd_root_directory()),
        state = quoted(layout.containerd_state_directory()),
        socket = quoted(layout.containerd_socket()),
        opt = quoted(layout.containerd_directory().join("opt")),
        runc = quoted(plan.program_path("runc")),
        runc_root = quoted(layout.containerd_state_directory().join("runc")),
        plugins = quoted(plan.program_path("cni")),
        networks = quoted(layout.configuration_file("cni")),
    )
}

/// The CNI configuration for pods without host network.
pub(crate) fn cni_config(context: ClusterContext<'_>) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": context.layout.cluster_id(),
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": context.layout.root().join("addresses"),
                "ranges": [[{"subnet": context.plan.pod_cidr()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

/// The kubelet's configuration.
pub(crate) fn kubelet_config(context: ClusterContext<'_>) -> Value {
    let ClusterContext { plan, layout } = context;
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": LocalClusterPlan::LOOPBACK_ADDRESS,
        "port": plan.ports.kubelet,
        "healthzBindAddress": LocalClusterPlan::LOOPBACK_ADDRESS,
        "healthzPort": plan.ports.kubelet_health,
        "containerRuntimeEndpoint": format!("unix://{}", layout.containerd_socket().display()),
        "syncFrequency": plan.sync_frequency,
        "tlsCertFile": layout.certificate_file("serving.crt"),
        "tlsPrivateKeyFile": layout.certificate_file("serving.key"),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": layout.certificate_file("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        // The configuration must work with the machine's control groups and swap, whatever they are.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "localStorageCapacityIsolation": false,
        // A full disk of the machine must not evict the pods of a test or remove imported images, which no
        // registry has.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxPods": 250,
        "serializeImagePulls": false,
        "podLogsDir": layout.log_directory().join("pods"),
        "volumePluginDir": layout.root().join("volume-plugins"),
    })
}

/// A kubeconfig that needs no other file.
pub(crate) fn render_kubeconfig(
    plan: &LocalClusterPlan,
    authority: &str,
    user: &CertificateWithKey,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lanyard",
        "clusters": [{
            "name": "lanyard",
            "cluster": {
                "server": plan.api_server_url(),
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "users": [{
            "name": user.name,
            "user": {
                "client-certificate-data": STANDARD.encode(&user.certificate),
                "client-key-data": STANDARD.encode(&user.key),
            },
        }],
        "contexts": [{
            "name": "lanyard",
            "context": {"cluster": "lanyard", "user": user.name},
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ClusterLayout;
    use crate::plan::tests::plan;

    #[test]
    fn everything_that_containerd_writes_is_below_the_directory() {
        let (plan, layout) = (plan(), ClusterLayout::new("/c".into()));
        let text = containerd_config(ClusterContext { plan: &plan, layout: &layout });
        for line in text.lines() {
            let Some((key, value)) = line.split_once(" = \"/") else { continue };
            assert!(
                value.starts_with("c/") || value.starts_with("programs/"),
                "{key} is outside: {value}"
            );
        }
        for key in ["root", "state", "address", "path", "Root", "conf_dir"] {
            assert!(text.contains(&format!("\n{key} = \"/c/")), "{key}");
        }
    }

    #[test]
    fn directory_with_quotes_is_escaped() {
        let (plan, layout) = (plan(), ClusterLayout::new("/c\"\\d".into()));
        let text = containerd_config(ClusterContext { plan: &plan, layout: &layout });
        assert!(text.contains(r#"state = "/c\"\\d/containerd/state""#), "{text}");
    }

    #[test]
    fn kubelet_listens_on_loopback_and_authenticates_clients() {
        let (plan, layout) = (plan(), ClusterLayout::new("/c".into()));
        let kubelet = kubelet_config(ClusterContext { plan: &plan, layout: &layout });
        assert_eq!(kubelet["address"], "127.0.0.1");
        assert_eq!(kubelet["healthzBindAddress"], "127.0.0.1");
        assert_eq!(kubelet["authentication"]["anonymous"]["enabled"], false);
        assert_eq!(kubelet["syncFrequency"], "1m");
    }
}
