//! Either road, as the command takes it.

use std::net::SocketAddr;
use std::path::Path;

use lanyard_up::{Closed, KubernetesRoad, Readers, Report, Road, RoadError};
use tokio::sync::watch;

/// Either road.
#[derive(Debug)]
pub(super) enum Way {
    /// Objects in memory.
    Memory(Box<Road>),
    /// Objects of a Kubernetes API.
    Kubernetes(Box<KubernetesRoad>),
}

/// The same question to either road.
macro_rules! either {
    ($way:expr, $road:ident => $answer:expr) => {
        match $way {
            Way::Memory($road) => $answer,
            Way::Kubernetes($road) => $answer,
        }
    };
}

impl Way {
    pub(super) async fn walk(&mut self) -> Result<(), RoadError> {
        match self {
            Self::Memory(road) => {
                road.walk().await;
                Ok(())
            }
            Self::Kubernetes(road) => road.walk().await,
        }
    }

    pub(super) async fn rotate(&mut self) {
        either!(self, road => road.rotate().await);
    }

    pub(super) fn report(&self) -> Report {
        either!(self, road => road.report())
    }

    pub(super) fn readers(&self) -> Option<Readers> {
        either!(self, road => road.readers())
    }

    pub(super) fn directory(&self) -> &Path {
        either!(self, road => road.directory())
    }

    pub(super) fn address(&self) -> SocketAddr {
        either!(self, road => road.address())
    }

    pub(super) fn ca_pem(&self) -> &str {
        either!(self, road => road.ca_pem())
    }

    /// The file with which people reach the Kubernetes API, where there is one.
    pub(super) fn kubeconfig(&self) -> Option<&Path> {
        match self {
            Self::Memory(_) => None,
            Self::Kubernetes(road) => Some(road.kubeconfig()),
        }
    }

    /// Keeps the volumes in step with the vault. It ends only by being dropped.
    pub(super) async fn keep_fresh(&mut self) {
        match self {
            Self::Memory(road) => road.keep_fresh().await,
            // The node plugin does.
            Self::Kubernetes(_) => std::future::pending().await,
        }
    }

    /// What was made on a server of others, and is taken away at the end: the server, and a name of
    /// each thing.
    pub(super) fn made_there(&self) -> Option<(&str, Vec<String>)> {
        match self {
            Self::Memory(_) => None,
            Self::Kubernetes(road) => road.made_there(),
        }
    }

    /// Takes everything away; once `hurry` says so, without waiting for anybody.
    pub(super) async fn close(self, hurry: watch::Receiver<bool>) -> Closed {
        match self {
            Self::Memory(road) => Box::pin(road.close()).await.into(),
            Self::Kubernetes(road) => Box::pin(road.close(hurry)).await,
        }
    }
}
