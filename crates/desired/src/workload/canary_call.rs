//! The proof call of a component's canary and the final hop that results from it.

use std::net::IpAddr;

use lanyard_vocabulary::{Component, Hop};

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::proof::granted_proof_call;
use crate::templates::WorkloadTemplates;

/// The inputs that decide about the canaries' proof calls, in addition to the cluster.
#[derive(Debug, Clone, Copy)]
pub struct CanaryCalls<'a> {
    /// The workload templates.
    pub templates: &'a WorkloadTemplates,
    /// The address of the router to private vaults, if the cluster has one.
    pub private_router: Option<IpAddr>,
}

impl CanaryCalls<'_> {
    /// Returns the proof call in the format of `lanyard canary --call`: the request from the
    /// templates, or the default request that the component's role grants. Returns `None` in these
    /// cases:
    ///
    /// - The templates disable the call, or the endpoints of the cloud are unknown.
    /// - The key is in a managed HSM, which has its own roles, and the identity has no role to read
    ///   the key.
    /// - The vault of the key is private and no router leads to it. Azure denies public access,
    ///   which says nothing about the identity.
    pub fn request_line(
        self,
        cluster: &ValidatedHostedCluster,
        component: Component,
    ) -> Option<String> {
        if let Some(call) = self.templates.canary.calls.get(&component) {
            return Some(call.clone()).filter(|call| !call.is_empty());
        }
        let endpoints = cluster.azure.cloud.endpoints()?;
        let is_out_of_reach = component == Component::Kms
            && cluster.encryption.as_ref().is_some_and(|it| {
                it.is_managed_hsm || (it.is_private_access && self.private_router.is_none())
            });
        if is_out_of_reach {
            return None;
        }
        Some(granted_proof_call(cluster, component)?.request_line(endpoints))
    }

    /// Returns the final hop of the canary: a granted call, if it makes one, or else a token.
    /// Earlier hops prove no identity.
    pub fn final_hop(self, cluster: &ValidatedHostedCluster, component: Component) -> Hop {
        if self.request_line(cluster, component).is_some() { Hop::Granted } else { Hop::EntraToken }
    }
}
