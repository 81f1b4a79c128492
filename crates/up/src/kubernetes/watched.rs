//! The board, read for one component.

use std::path::PathBuf;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_kubelet::{Kubelet, VolumeKey};
use lanyard_vocabulary::{Component, Hop};
use tokio::sync::watch;

use super::board::Board;
use super::told::{Account, Told};
use crate::azure_end::AzureEnd;
use crate::report::Failure;

/// The board with what is needed to read it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched<'a> {
    pub(super) azure: &'a AzureEnd,
    pub(super) kubelet: &'a Kubelet,
    pub(super) board: &'a Board,
    /// Where the API server answers.
    pub(super) server: &'a str,
}

impl Watched<'_> {
    pub(super) fn clock(&self) -> &SharedClock {
        &self.azure.clock
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.board.changes()
    }

    /// The certificate that the canary of a component proves with.
    pub(super) fn thumbprint(&self, component: Component) -> Option<String> {
        self.read(component, |told| told.proven_thumbprint())
    }

    /// How far a component came.
    pub(super) fn account(&self, component: Component) -> Account {
        self.read(component, |told| told.account())
    }

    /// What is to be said of a component that nobody settled in this time.
    pub(super) fn overdue(
        &self,
        component: Component,
        account: &Account,
        patience: Duration,
    ) -> (Hop, Failure) {
        self.read(component, |told| told.overdue(account, patience.as_secs()))
    }

    fn read<T>(&self, component: Component, read: impl FnOnce(Told<'_>) -> T) -> T {
        let cluster = &self.azure.cluster;
        let class = self.board.class(component.facts().secret_provider_class);
        let (pods, volumes) = (self.board.pods(), self.board.volumes());
        let events = self.board.events();
        let identity = self.board.identity(&cluster.name, component);
        let consumers = component.consumers().iter();
        let refusals: Vec<_> = consumers
            .filter_map(|it| Some((it.deployment, self.board.refusal(it.deployment)?)))
            .collect();
        let unseen = self.board.unseen();
        read(Told {
            cluster,
            component,
            server: self.server,
            class: class.as_deref(),
            pods: &pods,
            volumes: &volumes,
            events: &events,
            refusals: &refusals,
            unseen: &unseen,
            identity: identity.as_ref(),
        })
    }

    /// The files that the first consumers of these components read.
    pub(super) fn files(&self, components: &[Component]) -> Vec<PathBuf> {
        let pods = self.board.pods();
        let file = |component: &Component| {
            let consumer = component.consumers().first()?;
            let identity = self.azure.cluster.identities.get(component)?;
            let pod = pods.iter().find(|pod| {
                let owners = pod.metadata.owner_references.iter().flatten();
                let mut owners = owners.filter(|owner| owner.controller == Some(true));
                pod.metadata.deletion_timestamp.is_none()
                    && owners.any(|owner| owner.name == consumer.deployment)
            })?;
            let key = VolumeKey::new(pod.metadata.uid.clone()?, consumer.volume);
            Some(self.kubelet.target(&key).join(identity.secret_name.as_str()))
        };
        components.iter().filter_map(file).collect()
    }
}
