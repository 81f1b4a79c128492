//! What the canary of a component calls, and so how far it walks.

use std::net::IpAddr;

use lanyard_vocabulary::{Component, Hop};

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::proof::granted_proof_call;
use crate::templates::WorkloadTemplates;

/// What decides about the calls of canaries, beyond the cluster.
#[derive(Debug, Clone, Copy)]
pub struct CanaryCalls<'a> {
    /// How the components run.
    pub templates: &'a WorkloadTemplates,
    /// The address of the router to private vaults, where the cluster has one.
    pub private_router: Option<IpAddr>,
}

impl CanaryCalls<'_> {
    /// The call as `lanyard canary --call` takes it: what the templates say, or what the role
    /// grants by the table. Nothing where there is none to make:
    ///
    /// - the templates say so, or the cloud has no names that are known,
    /// - the key is in a managed HSM, whose roles are its own: nobody granted one to read the key,
    /// - the vault of the key is private, and no router leads there. Azure refuses whoever comes
    ///   the public way, and that says nothing about the identity.
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

    /// How far the canary walks: to a granted call, where it makes one, or to a token. Less proves
    /// no identity.
    pub fn final_hop(self, cluster: &ValidatedHostedCluster, component: Component) -> Hop {
        if self.request_line(cluster, component).is_some() { Hop::Granted } else { Hop::EntraToken }
    }
}
