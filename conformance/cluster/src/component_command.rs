//! The program and flags of each component.

use std::path::{Path, PathBuf};

use crate::component::ClusterComponent;
use crate::configuration;
use crate::plan::{ClusterContext, LocalClusterPlan};

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComponentCommand {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// The command that starts a component.
pub(crate) fn component_command(
    context: ClusterContext<'_>,
    component: ClusterComponent,
) -> ComponentCommand {
    let flags = match component {
        ClusterComponent::Etcd => etcd_flags(context),
        ClusterComponent::Containerd => containerd_flags(context),
        ClusterComponent::KubeApiserver => api_server_flags(context),
        ClusterComponent::KubeControllerManager => controller_manager_flags(context),
        ClusterComponent::KubeScheduler => scheduler_flags(context),
        ClusterComponent::Kubelet => kubelet_flags(context),
    };
    ComponentCommand {
        program: context.plan.program_path(component.name()),
        arguments: flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect(),
    }
}

type ComponentFlags = Vec<(&'static str, String)>;

fn etcd_flags(context: ClusterContext<'_>) -> ComponentFlags {
    let client = http_url(context.plan.ports.etcd);
    let peer = http_url(context.plan.ports.etcd_peer);
    vec![
        ("name", "only".to_owned()),
        ("data-dir", path_text(&context.layout.etcd_directory())),
        ("listen-client-urls", client.clone()),
        ("advertise-client-urls", client),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer.clone()),
        ("initial-cluster", format!("only={peer}")),
        // The cluster does not need to survive a crash of the machine.
        ("unsafe-no-fsync", "true".to_owned()),
        ("log-level", "warn".to_owned()),
    ]
}

fn containerd_flags(context: ClusterContext<'_>) -> ComponentFlags {
    vec![("config", path_text(&context.layout.configuration_file(configuration::CONTAINERD_FILE)))]
}

fn api_server_flags(context: ClusterContext<'_>) -> ComponentFlags {
    let ClusterContext { plan, layout } = context;
    let identity = |file: &str| path_text(&layout.certificate_file(file));
    vec![
        ("etcd-servers", http_url(plan.ports.etcd)),
        ("bind-address", LocalClusterPlan::LOOPBACK_ADDRESS.to_string()),
        ("secure-port", plan.ports.api_server.to_string()),
        ("tls-cert-file", identity("serving.crt")),
        ("tls-private-key-file", identity("serving.key")),
        ("client-ca-file", identity("ca.crt")),
        ("service-account-issuer", plan.service_account_issuer.clone()),
        ("service-account-signing-key-file", identity("service-account.key")),
        ("service-account-key-file", identity("service-account.key")),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("service-cluster-ip-range", LocalClusterPlan::SERVICE_CIDR.to_owned()),
        // The API server rejects loopback addresses in Endpoints.
        ("endpoint-reconciler-type", "none".to_owned()),
        ("allow-privileged", "true".to_owned()),
        ("kubelet-preferred-address-types", "Hostname".to_owned()),
        ("kubelet-certificate-authority", identity("ca.crt")),
        ("kubelet-client-certificate", identity("kube-apiserver.crt")),
        ("kubelet-client-key", identity("kube-apiserver.key")),
        ("profiling", "false".to_owned()),
    ]
}

fn controller_manager_flags(context: ClusterContext<'_>) -> ComponentFlags {
    let identity = |file: &str| path_text(&context.layout.certificate_file(file));
    let mut flags = controller_flags(
        context,
        ClusterComponent::KubeControllerManager,
        context.plan.ports.controller_manager,
    );
    flags.extend([
        ("service-account-private-key-file", identity("service-account.key")),
        ("root-ca-file", identity("ca.crt")),
        ("use-service-account-credentials", "true".to_owned()),
    ]);
    flags
}

fn scheduler_flags(context: ClusterContext<'_>) -> ComponentFlags {
    controller_flags(context, ClusterComponent::KubeScheduler, context.plan.ports.scheduler)
}

fn controller_flags(
    context: ClusterContext<'_>,
    component: ClusterComponent,
    port: u16,
) -> ComponentFlags {
    let identity = |file: &str| path_text(&context.layout.certificate_file(file));
    vec![
        ("kubeconfig", path_text(&component_kubeconfig_path(context, component))),
        ("bind-address", LocalClusterPlan::LOOPBACK_ADDRESS.to_string()),
        ("secure-port", port.to_string()),
        ("tls-cert-file", identity("serving.crt")),
        ("tls-private-key-file", identity("serving.key")),
        ("leader-elect", "false".to_owned()),
    ]
}

fn kubelet_flags(context: ClusterContext<'_>) -> ComponentFlags {
    let layout = context.layout;
    vec![
        ("config", path_text(&layout.configuration_file(configuration::KUBELET_FILE))),
        ("kubeconfig", path_text(&component_kubeconfig_path(context, ClusterComponent::Kubelet))),
        ("hostname-override", LocalClusterPlan::NODE_NAME.to_owned()),
        ("root-dir", path_text(&layout.kubelet_directory())),
        ("cert-dir", path_text(&layout.kubelet_directory().join("pki"))),
    ]
}

pub(crate) fn component_kubeconfig_path(
    context: ClusterContext<'_>,
    component: ClusterComponent,
) -> PathBuf {
    context.layout.configuration_file(&format!("{component}.kubeconfig"))
}

fn http_url(port: u16) -> String {
    format!("http://{}:{port}", LocalClusterPlan::LOOPBACK_ADDRESS)
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ClusterLayout;
    use crate::plan::tests::plan;

    #[test]
    fn nothing_listens_beyond_loopback_and_nothing_writes_outside() {
        let (plan, layout) = (plan(), ClusterLayout::new("/c".into()));
        for component in ClusterComponent::ALL {
            let launch =
                component_command(ClusterContext { plan: &plan, layout: &layout }, component);
            assert_eq!(launch.program, plan.programs.join(component.name()));
            for argument in &launch.arguments {
                let (flag, value) = argument.split_once('=').expect("each flag has its value");
                if value.starts_with('/') {
                    assert!(value.starts_with("/c/"), "{component} {flag} is outside: {value}");
                }
                if flag.contains("bind-address") {
                    assert_eq!(value, "127.0.0.1", "{component}");
                }
                if let Some((_, rest)) = value.split_once("http://") {
                    assert!(rest.starts_with("127.0.0.1:"), "{component} {flag}: {value}");
                }
            }
        }
    }

    #[test]
    fn the_api_server_and_the_controller_manager_share_the_key_of_service_accounts() {
        let (plan, layout) = (plan(), ClusterLayout::new("/c".into()));
        let key = |component, flag: &str| {
            component_command(ClusterContext { plan: &plan, layout: &layout }, component)
                .arguments
                .iter()
                .find_map(|it| it.strip_prefix(flag).map(str::to_owned))
        };
        let signing = key(ClusterComponent::KubeApiserver, "--service-account-signing-key-file=");
        assert!(signing.is_some());
        assert_eq!(signing, key(ClusterComponent::KubeApiserver, "--service-account-key-file="));
        assert_eq!(
            signing,
            key(ClusterComponent::KubeControllerManager, "--service-account-private-key-file=")
        );
    }
}
