//! How what was made on the server is taken away again.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Preconditions};
use kube::{Api, ResourceExt};
use lanyard_api::{HostedCluster, HostedClusterIdentities};
use lanyard_kubernetes::{ApiError, Patience};

use super::{Site, kind_of, kind_of_definition};
use crate::kubernetes::error::KubernetesRoadError;
use crate::kubernetes::leaving::{Leaving, Sight};
use crate::kubernetes::ledger::{Names, Thing};
use crate::kubernetes::others::{self, Marks};

impl Site {
    /// Takes everything away again, until `over` at most. A namespace or a definition stays where
    /// others have put something into it.
    pub(in crate::kubernetes) async fn leave(&self, over: impl Future<Output = ()>) -> Leaving {
        let mut leaving = Leaving::of(&self.ledger);
        tokio::select! {
            () = self.take_all_away(&mut leaving) => {}
            () = over => {
                // The operator may be done with its part while others hold the HostedCluster.
                let sight = self.is_operator_done(Patience::LITTLE).await;
                leaving.note(&Thing::ControlPlane, sight, Duration::MAX);
            }
        }
        leaving
    }

    async fn take_all_away(&self, leaving: &mut Leaving) {
        let clock = self.api.clock();
        let began = clock.monotonic();
        let mut cluster = self.cluster_uid.clone();
        loop {
            let mut pause = LOOK_EVERY;
            let things = leaving.next();
            if things.is_empty() {
                return;
            }
            for thing in things {
                let sight = self.take_away(&thing, &mut cluster).await;
                if !leaving.note(&thing, sight, clock.monotonic().saturating_sub(began)) {
                    pause = UNREACHED_PAUSE;
                    break;
                }
            }
            clock.sleep(pause).await;
        }
    }

    /// Takes one thing away; `cluster` is the uid of the HostedCluster of this run, where it is known.
    async fn take_away(
        &self,
        thing: &Thing,
        cluster: &mut Option<String>,
    ) -> Result<Sight, ApiError> {
        let marks = Marks {
            names: &self.names,
            cluster: cluster.as_deref(),
            has_control_plane: self.ledger.contains_key(&Thing::ControlPlane),
        };
        match thing {
            Thing::Cluster => {
                let clusters = self.clusters();
                let found = self.find_ours(&clusters, &self.names.cluster).await?;
                *cluster = found.as_ref().and_then(ResourceExt::uid).or(cluster.take());
                self.delete(&clusters, found).await
            }
            Thing::ControlPlane => self.is_operator_done(Patience::ONE_TRY).await,
            Thing::Identities => self.take_orphan_away(cluster.as_deref()).await,
            Thing::Node => {
                let nodes: Api<Node> = Api::all(self.client());
                let found = self.find_ours(&nodes, &self.names.node()).await?;
                self.delete(&nodes, found).await
            }
            Thing::Namespace => {
                let namespaces: Api<Namespace> = Api::all(self.client());
                let found = self.find_ours(&namespaces, &self.names.namespace).await?;
                if found.as_ref().is_some_and(is_there_to_stay) {
                    let others = others::in_namespace(&self.api, marks).await?;
                    if !others.is_empty() {
                        return Ok(Sight::Stays(others));
                    }
                }
                self.delete(&namespaces, found).await
            }
            Thing::Definition(name) => {
                let all: Api<CustomResourceDefinition> = Api::all(self.client());
                let found = self.find_ours(&all, name).await?;
                if let Some(found) = found.as_ref().filter(|found| is_there_to_stay(*found)) {
                    let kind = kind_of_definition(found);
                    let others = others::of_kind(&self.api, &kind, marks).await?;
                    if !others.is_empty() {
                        return Ok(Sight::Stays(others));
                    }
                }
                self.delete(&all, found).await
            }
        }
    }

    /// The namespace of the control plane is the operator's, who removes it before it lets the
    /// HostedCluster go. Another one of the name is another cluster's.
    async fn is_operator_done(&self, patience: Patience) -> Result<Sight, ApiError> {
        let Some(found) = self.find_control_plane(patience).await? else {
            return Ok(Sight::Gone);
        };
        let Names { namespace, cluster, .. } = &self.names;
        let owner = found.annotations().get(HostedCluster::CLUSTER_ANNOTATION);
        let is_ours = owner.is_some_and(|owner| *owner == format!("{namespace}/{cluster}"));
        Ok(if is_ours { Sight::Going } else { Sight::Gone })
    }

    /// Deletes what the operator told of our HostedCluster, where nobody collects garbage.
    async fn take_orphan_away(&self, cluster: Option<&str>) -> Result<Sight, ApiError> {
        let kind = kind_of(
            HostedClusterIdentities::API_VERSION,
            HostedClusterIdentities::KIND,
            HostedClusterIdentities::PLURAL,
        );
        let told: Api<DynamicObject> =
            Api::namespaced_with(self.client(), &self.names.namespace, &kind);
        let found = self.find(&told, &self.names.cluster).await?;
        let is_orphan = |found: &DynamicObject| {
            found.owner_references().iter().any(|owner| Some(&*owner.uid) == cluster)
        };
        self.delete(&told, found.filter(is_orphan)).await
    }

    /// What could not be removed, for a person.
    pub(in crate::kubernetes) fn left_behind(
        &self,
        leaving: &Leaving,
        server: &str,
    ) -> Option<KubernetesRoadError> {
        let (left, stays) = (leaving.left(), leaving.stays().keys().cloned().collect());
        (!left.is_empty()).then(|| KubernetesRoadError::Left {
            server: server.to_owned(),
            left: self.names.list(&left),
            removal: self.names.removal(&left, &stays),
            source: leaving.reason().cloned().map(Box::new),
        })
    }

    /// What stays for others, for a person.
    pub(in crate::kubernetes) fn staying(&self, leaving: &Leaving) -> Vec<String> {
        let told = |(thing, others): (&Thing, &Vec<String>)| {
            format!(
                "{} stays: others have {} there; once nobody needs it: {}",
                self.names.describe(thing),
                others::told(others),
                self.names.removal_of_one(thing),
            )
        };
        leaving.stays().iter().map(told).collect()
    }

    /// Deletes just this object, if it is there, and nobody has yet.
    async fn delete<K>(&self, api: &Api<K>, found: Option<K>) -> Result<Sight, ApiError>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let Some(found) = found else { return Ok(Sight::Gone) };
        if is_there_to_stay(&found) {
            let name = found.name_any();
            let preconditions = Preconditions { uid: found.uid(), resource_version: None };
            let parameters =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            let delete = || api.delete(&name, &parameters);
            self.api.find(Patience::ONE_TRY, format!("delete {name}"), delete).await?;
        }
        Ok(Sight::Going)
    }
}

/// Whether nobody has deleted it yet.
fn is_there_to_stay(object: &impl ResourceExt) -> bool {
    object.meta().deletion_timestamp.is_none()
}

/// How often what goes is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The pause where the server was not reached.
const UNREACHED_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
