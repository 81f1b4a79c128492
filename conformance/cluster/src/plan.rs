//! The plan of a cluster, made from the caller's options and free ports.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::layout::ClusterLayout;
use crate::ports::ClusterPorts;

/// The caller's options for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The directory of the cluster. It is created if it is missing, and removed with the cluster.
    pub directory: PathBuf,
    /// The directory of the programs: `etcd`, `kube-apiserver`, …, `cni/`, `images/`.
    pub programs: PathBuf,
    /// The kubelet's `syncFrequency`, for example `10s`. The kubelet republishes a CSI volume every 1 to 1.5
    /// periods. The default is one minute.
    pub sync_frequency: Option<String>,
    /// The issuer of service account tokens, as in their `iss` claim.
    pub service_account_issuer: Option<String>,
    /// A PEM file with the RSA key that signs service account tokens. The default is a new key.
    pub service_account_key: Option<PathBuf>,
}

impl Options {
    /// Creates options with the defaults of the programs.
    pub const fn new(directory: PathBuf, programs: PathBuf) -> Self {
        Self {
            directory,
            programs,
            sync_frequency: None,
            service_account_issuer: None,
            service_account_key: None,
        }
    }
}

/// The plan of a cluster, which stays the same from its start to its removal. It is stored in `plan.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalClusterPlan {
    /// The directory of the programs.
    pub programs: PathBuf,
    /// The kubelet's `syncFrequency`.
    pub sync_frequency: String,
    /// The issuer of service account tokens.
    pub service_account_issuer: String,
    /// The path of the caller's key for service account tokens, if the caller gave one.
    pub service_account_key: Option<PathBuf>,
    /// The ports of the components on loopback.
    pub ports: ClusterPorts,
}

impl LocalClusterPlan {
    /// The name of the node. With another name, the API server would resolve the kubelet's address through
    /// DNS.
    pub const NODE_NAME: &str = "localhost";
    /// The address on which all components listen.
    pub const LOOPBACK_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// The service CIDR. No traffic is routed to it, because there is no kube-proxy.
    pub(crate) const SERVICE_CIDR: &str = "10.0.0.0/24";
    /// The first address of the service CIDR, which is the API server's.
    pub(crate) const API_SERVER_SERVICE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    pub(crate) fn new(options: &Options, ports: ClusterPorts) -> Self {
        Self {
            programs: options.programs.clone(),
            sync_frequency: options.sync_frequency.clone().unwrap_or_else(|| "1m".to_owned()),
            service_account_issuer: options
                .service_account_issuer
                .clone()
                .unwrap_or_else(|| "https://kubernetes.default.svc.cluster.local".to_owned()),
            service_account_key: options.service_account_key.clone(),
            ports,
        }
    }

    /// The first option that differs from this plan. Options that are not set never differ.
    pub(crate) fn conflicting_option(&self, options: &Options) -> Option<&'static str> {
        let differs = |wanted: &Option<String>, found: &String| {
            wanted.as_ref().is_some_and(|wanted| wanted != found)
        };
        if options.programs != self.programs {
            Some("set of programs (or version of Kubernetes)")
        } else if differs(&options.sync_frequency, &self.sync_frequency) {
            Some("--sync-frequency")
        } else if differs(&options.service_account_issuer, &self.service_account_issuer) {
            Some("--service-account-issuer")
        } else if options.service_account_key.is_some()
            && options.service_account_key != self.service_account_key
        {
            Some("--service-account-key")
        } else {
            None
        }
    }

    /// The URL of the API server.
    pub fn api_server_url(&self) -> String {
        format!("https://{}:{}", Self::LOOPBACK_ADDRESS, self.ports.api_server)
    }

    /// The CIDR of pods without host network: a /24 that is derived from the API server's port, so that two
    /// clusters of a machine do not overlap.
    pub(crate) fn pod_cidr(&self) -> String {
        let [high, low] = self.ports.api_server.to_be_bytes();
        format!("10.{high}.{low}.0/24")
    }

    pub fn program_path(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

/// A plan and its layout, the inputs of the pure modules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterContext<'a> {
    pub(crate) plan: &'a LocalClusterPlan,
    pub(crate) layout: &'a ClusterLayout,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    pub(crate) fn options() -> Options {
        Options::new("/c".into(), "/programs".into())
    }

    pub(crate) fn plan() -> LocalClusterPlan {
        LocalClusterPlan::new(
            &options(),
            ClusterPorts::from_array([20_001, 20_002, 20_003, 20_004, 20_005, 20_006, 20_007]),
        )
    }

    #[test]
    fn an_option_that_is_left_out_contradicts_nothing() {
        let wanted = Options { sync_frequency: Some("10s".to_owned()), ..options() };
        let ten = LocalClusterPlan::new(&wanted, plan().ports);
        assert_eq!(ten.conflicting_option(&options()), None);
        assert_eq!(ten.conflicting_option(&wanted), None);
        assert_eq!(plan().conflicting_option(&wanted), Some("--sync-frequency"));
        let other_key = Options { service_account_key: Some("/k".into()), ..options() };
        assert_eq!(plan().conflicting_option(&other_key), Some("--service-account-key"));
        let other = Options { programs: "/others".into(), ..options() };
        assert!(plan().conflicting_option(&other).is_some());
    }

    proptest! {
        #[test]
        fn clusters_with_two_api_ports_have_two_pod_networks(ports in prop::collection::btree_set(1024_u16.., 2..20)) {
            let networks: BTreeSet<String> = ports
                .iter()
                .map(|port| {
                    let mut plan = plan();
                    plan.ports.api_server = *port;
                    plan.pod_cidr()
                })
                .collect();
            prop_assert_eq!(networks.len(), ports.len());
        }
    }

    #[test]
    fn a_plan_is_read_back_as_it_was_written() {
        let text = serde_json::to_string(&plan()).expect("it is JSON");
        assert_eq!(serde_json::from_str::<LocalClusterPlan>(&text).expect("it is a plan"), plan());
    }
}
