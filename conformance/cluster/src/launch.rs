//! How each component is started: its program and flags.

use std::path::{Path, PathBuf};

use crate::component::Component;
use crate::configuration;
use crate::plan::{Plan, Site};

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// The launch of a component.
pub(crate) fn launch(site: Site<'_>, component: Component) -> Launch {
    let flags = match component {
        Component::Etcd => etcd(site),
        Component::Containerd => containerd(site),
        Component::KubeApiserver => api_server(site),
        Component::KubeControllerManager => controller_manager(site),
        Component::KubeScheduler => scheduler(site),
        Component::Kubelet => kubelet(site),
    };
    Launch {
        program: site.plan.program(component.name()),
        arguments: flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect(),
    }
}

type Flags = Vec<(&'static str, String)>;

fn etcd(site: Site<'_>) -> Flags {
    let client = plain_url(site.plan.ports.etcd);
    let peer = plain_url(site.plan.ports.etcd_peer);
    vec![
        ("name", "only".to_owned()),
        ("data-dir", text(&site.layout.etcd())),
        ("listen-client-urls", client.clone()),
        ("advertise-client-urls", client),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer.clone()),
        ("initial-cluster", format!("only={peer}")),
        // What a crash of the machine loses, nobody needs.
        ("unsafe-no-fsync", "true".to_owned()),
        ("log-level", "warn".to_owned()),
    ]
}

fn containerd(site: Site<'_>) -> Flags {
    vec![("config", text(&site.layout.configuration(configuration::CONTAINERD)))]
}

fn api_server(site: Site<'_>) -> Flags {
    let Site { plan, layout } = site;
    let identity = |file: &str| text(&layout.identity(file));
    vec![
        ("etcd-servers", plain_url(plan.ports.etcd)),
        ("bind-address", Plan::ADDRESS.to_string()),
        ("secure-port", plan.ports.api_server.to_string()),
        ("tls-cert-file", identity("serving.crt")),
        ("tls-private-key-file", identity("serving.key")),
        ("client-ca-file", identity("ca.crt")),
        ("service-account-issuer", plan.service_account_issuer.clone()),
        ("service-account-signing-key-file", identity("service-account.key")),
        ("service-account-key-file", identity("service-account.key")),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("service-cluster-ip-range", Plan::SERVICES.to_owned()),
        // An Endpoints object may not name a loopback address.
        ("endpoint-reconciler-type", "none".to_owned()),
        ("allow-privileged", "true".to_owned()),
        ("kubelet-preferred-address-types", "Hostname".to_owned()),
        ("kubelet-certificate-authority", identity("ca.crt")),
        ("kubelet-client-certificate", identity("kube-apiserver.crt")),
        ("kubelet-client-key", identity("kube-apiserver.key")),
        ("profiling", "false".to_owned()),
    ]
}

fn controller_manager(site: Site<'_>) -> Flags {
    let identity = |file: &str| text(&site.layout.identity(file));
    let mut flags =
        of_controller(site, Component::KubeControllerManager, site.plan.ports.controller_manager);
    flags.extend([
        ("service-account-private-key-file", identity("service-account.key")),
        ("root-ca-file", identity("ca.crt")),
        ("use-service-account-credentials", "true".to_owned()),
    ]);
    flags
}

fn scheduler(site: Site<'_>) -> Flags {
    of_controller(site, Component::KubeScheduler, site.plan.ports.scheduler)
}

fn of_controller(site: Site<'_>, component: Component, port: u16) -> Flags {
    let identity = |file: &str| text(&site.layout.identity(file));
    vec![
        ("kubeconfig", text(&kubeconfig_of(site, component))),
        ("bind-address", Plan::ADDRESS.to_string()),
        ("secure-port", port.to_string()),
        ("tls-cert-file", identity("serving.crt")),
        ("tls-private-key-file", identity("serving.key")),
        ("leader-elect", "false".to_owned()),
    ]
}

fn kubelet(site: Site<'_>) -> Flags {
    let layout = site.layout;
    vec![
        ("config", text(&layout.configuration(configuration::KUBELET))),
        ("kubeconfig", text(&kubeconfig_of(site, Component::Kubelet))),
        ("hostname-override", Plan::NODE.to_owned()),
        ("root-dir", text(&layout.kubelet())),
        ("cert-dir", text(&layout.kubelet().join("pki"))),
    ]
}

/// The kubeconfig that a component signs in with.
pub(crate) fn kubeconfig_of(site: Site<'_>, component: Component) -> PathBuf {
    site.layout.configuration(&format!("{component}.kubeconfig"))
}

fn plain_url(port: u16) -> String {
    format!("http://{}:{port}", Plan::ADDRESS)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::plan::tests::plan;

    #[test]
    fn nothing_listens_beyond_loopback_and_nothing_writes_outside() {
        let (plan, layout) = (plan(), Layout::new("/c".into()));
        for component in Component::ALL {
            let launch = launch(Site { plan: &plan, layout: &layout }, component);
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
        let (plan, layout) = (plan(), Layout::new("/c".into()));
        let key = |component, flag: &str| {
            launch(Site { plan: &plan, layout: &layout }, component)
                .arguments
                .iter()
                .find_map(|it| it.strip_prefix(flag).map(str::to_owned))
        };
        let signing = key(Component::KubeApiserver, "--service-account-signing-key-file=");
        assert!(signing.is_some());
        assert_eq!(signing, key(Component::KubeApiserver, "--service-account-key-file="));
        assert_eq!(
            signing,
            key(Component::KubeControllerManager, "--service-account-private-key-file=")
        );
    }
}
