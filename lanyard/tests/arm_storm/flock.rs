//! The nine canaries of a cluster, and their facts as the operator reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::CanaryFacts;
use lanyard_api::hosted_cluster_identities::IdentitiesStatus;
use lanyard_canary::{
    Canary, CanaryMetrics, CanaryParts, CanarySettings, CredentialPlace, FactsTeller, GrantedCall,
    KeyUrl, NetworkPlace, Patience, ProbeSettings, TellError, Telling,
};
use lanyard_credential::{TokenTransport, TokenTransportOptions};
use lanyard_desired::forecast::Policy;
use lanyard_desired::status::{
    Classes, ClusterState, Facts, Observed, ObservedPod, ObservedVolume, identities_status,
};
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_desired::workload::CanaryCalls;
use lanyard_desired::{Problems, ValidatedHostedCluster, desired_proofs};
use lanyard_telemetry::MetricsPage;
use lanyard_vocabulary::{Cloud, Component};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinSet};

use crate::azure::Azure;

/// The annotations of all pods, by component, and how often each was written.
#[derive(Debug, Clone, Default)]
struct Annotations(Arc<Mutex<BTreeMap<Component, (String, usize)>>>);

/// The annotation of one pod.
#[derive(Debug)]
struct Annotation {
    component: Component,
    all: Annotations,
}

#[async_trait]
impl FactsTeller for Annotation {
    async fn fetch_facts(&self) -> Result<Option<CanaryFacts>, TellError> {
        Ok(None)
    }

    async fn apply_facts(&self, facts: &CanaryFacts) -> Result<(), TellError> {
        let text = serde_json::to_string(facts).unwrap();
        let mut all = self.all.0.lock();
        let count = all.get(&self.component).map_or(0, |(_, count)| *count);
        all.insert(self.component, (text, count + 1));
        Ok(())
    }
}

/// The nine canaries of a cluster, which run until this ends.
pub(crate) struct Flock {
    cluster: ValidatedHostedCluster,
    annotations: Annotations,
    metrics: BTreeMap<Component, CanaryMetrics>,
    classes: BTreeSet<String>,
    files: TempDir,
    canaries: JoinSet<()>,
    running: BTreeMap<Component, AbortHandle>,
}

impl Flock {
    pub(crate) async fn release(azure: &Azure) -> Self {
        let files = tempfile::tempdir().unwrap();
        for component in Component::ALL {
            let place = files.path().join(component.name());
            std::fs::write(&place, azure.document(component).await).unwrap();
        }
        let classes = Component::ALL.map(|it| it.facts().secret_provider_class.to_owned()).into();
        let mut flock = Self {
            cluster: azure.cluster.clone(),
            annotations: Annotations::default(),
            metrics: BTreeMap::new(),
            classes,
            files,
            canaries: JoinSet::new(),
            running: BTreeMap::new(),
        };
        for component in Component::ALL {
            flock.start(azure, component);
        }
        flock
    }

    fn start(&mut self, azure: &Azure, component: Component) {
        let settings = settings(azure, component, self.files.path());
        let parts = parts(azure, component);
        self.metrics.insert(component, parts.metrics.clone());
        let teller = Arc::new(Annotation { component, all: self.annotations.clone() });
        let telling = Telling::new(teller, azure.shared_clock(), parts.metrics.clone());
        let task = self.canaries.spawn(Canary::new(settings, parts).telling(telling).run());
        self.running.insert(component, task);
    }

    /// A new pod takes the place of a component's, as in a rollout.
    pub(crate) fn replace(&mut self, azure: &Azure, component: Component) {
        self.running[&component].abort();
        self.annotations.0.lock().remove(&component);
        self.start(azure, component);
    }

    /// The node brings what the vault holds now.
    pub(crate) async fn rewrite(&self, azure: &Azure, component: Component) {
        let fresh = self.files.path().join("fresh");
        std::fs::write(&fresh, azure.document(component).await).unwrap();
        std::fs::rename(fresh, self.files.path().join(component.name())).unwrap();
    }

    /// How the identities are, as the operator tells it.
    pub(crate) fn status(
        &self,
        now: Timestamp,
        previous: Option<&IdentitiesStatus>,
    ) -> IdentitiesStatus {
        let pods: Vec<_> = Component::ALL.into_iter().map(|it| self.pod(it)).collect();
        let volumes: Vec<_> = pods.iter().flat_map(|pod| self.volumes(pod)).collect();
        identities_status(&Observed {
            cluster: ClusterState::Valid(&self.cluster),
            generation: Some(1),
            now,
            classes: Classes::Listed(&self.classes),
            pods: &pods,
            volumes: &volumes,
            canaries: CanaryCalls {
                templates: &WorkloadTemplates::default(),
                private_router: None,
            },
            policy: &Policy::default(),
            lints: &Problems::default(),
            is_ending: false,
            drift: &[],
            previous,
        })
    }

    /// The pod in which a component's identity is proven, with all classes that it mounts.
    fn pod(&self, component: Component) -> ObservedPod {
        let deployment = component.consumers()[0].deployment;
        let mounts = |other: &Component| {
            other.consumers().iter().any(|consumer| consumer.deployment == deployment)
        };
        let classes = Component::ALL.iter().filter(|other| mounts(other));
        let annotations = self.annotations.0.lock();
        let text = annotations.get(&component).map(|(text, _)| text.clone());
        let canary =
            text.map_or(Facts::Absent, |text| Facts::Told(serde_json::from_str(&text).unwrap()));
        ObservedPod {
            name: format!("{deployment}-0"),
            deployment: Some(deployment.to_owned()),
            classes: classes.map(|it| it.facts().secret_provider_class.to_owned()).collect(),
            is_ready: true,
            canary,
            ..ObservedPod::default()
        }
    }

    fn volumes(&self, pod: &ObservedPod) -> Vec<ObservedVolume> {
        let of_class = |class: &String| {
            let component =
                Component::ALL.into_iter().find(|it| it.facts().secret_provider_class == class)?;
            let name = &self.cluster.identities[&component].secret_name;
            Some(ObservedVolume {
                pod: pod.name.clone(),
                class: class.clone(),
                is_mounted: true,
                objects: vec![(format!("secret/{name}"), "v1".to_owned())],
                ..ObservedVolume::default()
            })
        };
        pod.classes.iter().filter_map(of_class).collect()
    }

    /// How often a component was without a token.
    pub(crate) fn lapses(&self, component: Component) -> u64 {
        let metrics = &self.metrics[&component];
        let page = MetricsPage::build(|registry| metrics.register(registry)).render();
        let line = page.lines().find_map(|it| it.strip_prefix("lanyard_canary_lapses_total "));
        line.unwrap().parse().unwrap()
    }

    /// How often a component's annotation was written.
    pub(crate) fn told(&self, component: Component) -> usize {
        self.annotations.0.lock()[&component].1
    }
}

/// What the operator renders for a canary.
fn settings(azure: &Azure, component: Component, files: &std::path::Path) -> CanarySettings {
    let endpoints = Cloud::Public.endpoints().unwrap();
    let cluster = &azure.cluster;
    let line = desired_proofs(cluster)[&component].granted.request_line(endpoints);
    let encryption = || {
        let key = &cluster.encryption.as_ref().unwrap().active_key;
        let url =
            format!("https://{}.vault.azure.net/keys/{}/{}", key.vault, key.name, key.version);
        let key = KeyUrl::parse(&url, endpoints).unwrap();
        let file = files.join(Component::Kms.name());
        ProbeSettings::Encryption { key, credential_file: Some(file) }
    };
    let network = || {
        ProbeSettings::Network(NetworkPlace {
            vnet: cluster.azure.vnet.clone(),
            security_group: cluster.azure.security_group.clone(),
            resource_group: cluster.managed_group(),
        })
    };
    let probes = match component {
        Component::ControlPlaneOperator => vec![network(), encryption()],
        Component::Kms => vec![encryption()],
        _ => Vec::new(),
    };
    CanarySettings {
        component,
        endpoints,
        place: CredentialPlace::File(files.join(component.name())),
        call: Some(GrantedCall::parse(&line, endpoints).unwrap()),
        probes,
        interval: Duration::from_mins(1),
        token_interval: Duration::from_mins(10),
        probe_interval: Duration::from_mins(10),
        patience: Patience::HOPS,
    }
}

fn parts(azure: &Azure, component: Component) -> CanaryParts {
    let transport = azure.transport();
    let mut options = TokenTransportOptions::default();
    options.clock = azure.shared_clock();
    options.retry = Some(CanaryParts::token_retry());
    options.client.transport = Some(transport.unpaced());
    CanaryParts {
        clock: azure.shared_clock(),
        token_transport: TokenTransport::new(options),
        transport,
        metrics: CanaryMetrics::new(component, azure.shared_clock()),
    }
}
