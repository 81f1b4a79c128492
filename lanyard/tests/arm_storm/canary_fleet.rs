//! The nine canaries of a cluster, and their facts as the operator reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::CanaryStatusReport;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_canary::{
    CanaryDependencies, CanaryMetrics, CanarySettings, CredentialFileLocation, FactsPublisher,
    FactsSink, FailureThreshold, GrantedCall, IdentityCanary, KeyUrl, NetworkProbeTarget,
    ProbeSettings, PublishFactsError,
};
use lanyard_credential::{TokenTransport, TokenTransportOptions};
use lanyard_desired::forecast::RenewalPolicy;
use lanyard_desired::status::{
    ClusterValidation, IdentityStatusInputs, ObservedClasses, ObservedPod, ObservedVolume,
    StatusReportAnnotation, identities_status,
};
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_desired::workload::CanaryCalls;
use lanyard_desired::{ValidatedHostedCluster, ValidationProblems, desired_proof_calls};
use lanyard_telemetry::MetricsPage;
use lanyard_vocabulary::{Cloud, Component};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinSet};

use crate::virtual_time_azure::VirtualTimeAzure;

/// The annotations of all pods, by component, and the number of writes of each.
#[derive(Debug, Clone, Default)]
struct FakePodAnnotations(Arc<Mutex<BTreeMap<Component, (String, usize)>>>);

/// The annotation of one pod.
#[derive(Debug)]
struct FakePodAnnotation {
    component: Component,
    all: FakePodAnnotations,
}

#[async_trait]
impl FactsSink for FakePodAnnotation {
    async fn fetch_facts(&self) -> Result<Option<CanaryStatusReport>, PublishFactsError> {
        Ok(None)
    }

    async fn apply_facts(&self, facts: &CanaryStatusReport) -> Result<(), PublishFactsError> {
        let text = serde_json::to_string(facts).unwrap();
        let mut all = self.all.0.lock();
        let count = all.get(&self.component).map_or(0, |(_, count)| *count);
        all.insert(self.component, (text, count + 1));
        Ok(())
    }
}

/// The nine canaries of a cluster. They run until this value is dropped.
pub(crate) struct TestCanaryFleet {
    cluster: ValidatedHostedCluster,
    annotations: FakePodAnnotations,
    metrics: BTreeMap<Component, CanaryMetrics>,
    classes: BTreeSet<String>,
    files: TempDir,
    canaries: JoinSet<()>,
    running: BTreeMap<Component, AbortHandle>,
}

impl TestCanaryFleet {
    pub(crate) async fn start_all(azure: &VirtualTimeAzure) -> Self {
        let files = tempfile::tempdir().unwrap();
        for component in Component::ALL {
            let place = files.path().join(component.name());
            std::fs::write(&place, azure.fetch_document(component).await).unwrap();
        }
        let classes =
            Component::ALL.map(|it| it.definition().secret_provider_class.to_owned()).into();
        let mut canary_fleet = Self {
            cluster: azure.cluster.clone(),
            annotations: FakePodAnnotations::default(),
            metrics: BTreeMap::new(),
            classes,
            files,
            canaries: JoinSet::new(),
            running: BTreeMap::new(),
        };
        for component in Component::ALL {
            canary_fleet.start(azure, component);
        }
        canary_fleet
    }

    fn start(&mut self, azure: &VirtualTimeAzure, component: Component) {
        let settings = canary_settings(azure, component, self.files.path());
        let parts = canary_parts(azure, component);
        self.metrics.insert(component, parts.metrics.clone());
        let annotation = Arc::new(FakePodAnnotation { component, all: self.annotations.clone() });
        let publisher =
            FactsPublisher::new(annotation, azure.shared_clock(), parts.metrics.clone());
        let task = self
            .canaries
            .spawn(IdentityCanary::new(settings, parts).with_publisher(publisher).run());
        self.running.insert(component, task);
    }

    /// Replaces a component's pod, as a rollout does.
    pub(crate) fn replace_pod(&mut self, azure: &VirtualTimeAzure, component: Component) {
        self.running[&component].abort();
        self.annotations.0.lock().remove(&component);
        self.start(azure, component);
    }

    /// Writes the current credential document of the vault, as the node plugin does.
    pub(crate) async fn rewrite_credential_file(
        &self,
        azure: &VirtualTimeAzure,
        component: Component,
    ) {
        let fresh = self.files.path().join("fresh");
        std::fs::write(&fresh, azure.fetch_document(component).await).unwrap();
        std::fs::rename(fresh, self.files.path().join(component.name())).unwrap();
    }

    /// The status of the identities, as the operator reports it.
    pub(crate) fn status(
        &self,
        now: Timestamp,
        previous: Option<&HostedClusterIdentitiesStatus>,
    ) -> HostedClusterIdentitiesStatus {
        let pods: Vec<_> = Component::ALL.into_iter().map(|it| self.observed_pod(it)).collect();
        let volumes: Vec<_> = pods.iter().flat_map(|pod| self.observed_volumes(pod)).collect();
        identities_status(&IdentityStatusInputs {
            cluster: ClusterValidation::Valid(&self.cluster),
            generation: Some(1),
            now,
            classes: ObservedClasses::Listed(&self.classes),
            pods: &pods,
            volumes: &volumes,
            canary_calls: CanaryCalls {
                templates: &WorkloadTemplates::default(),
                private_router: None,
            },
            renewal_policy: &RenewalPolicy::default(),
            problems: &ValidationProblems::default(),
            data_encryption: None,
            is_deleting: false,
            drift_findings: &[],
            previous_status: previous,
        })
    }

    /// The pod that proves a component's identity, with all classes that it mounts.
    fn observed_pod(&self, component: Component) -> ObservedPod {
        let deployment = component.consumers()[0].deployment;
        let mounts = |other: &Component| {
            other.consumers().iter().any(|consumer| consumer.deployment == deployment)
        };
        let classes = Component::ALL.iter().filter(|other| mounts(other));
        let annotations = self.annotations.0.lock();
        let text = annotations.get(&component).map(|(text, _)| text.clone());
        let canary = text.map_or(StatusReportAnnotation::Absent, |text| {
            StatusReportAnnotation::Parsed(serde_json::from_str(&text).unwrap())
        });
        ObservedPod {
            name: format!("{deployment}-0"),
            deployment: Some(deployment.to_owned()),
            class_names: classes
                .map(|it| it.definition().secret_provider_class.to_owned())
                .collect(),
            is_ready: true,
            canary_report: canary,
            ..ObservedPod::default()
        }
    }

    fn observed_volumes(&self, pod: &ObservedPod) -> Vec<ObservedVolume> {
        let of_class = |class: &String| {
            let component = Component::ALL
                .into_iter()
                .find(|it| it.definition().secret_provider_class == class)?;
            let name = &self.cluster.identities[&component].secret_name;
            Some(ObservedVolume {
                pod_name: pod.name.clone(),
                class_name: class.clone(),
                is_mounted: true,
                objects: vec![(format!("secret/{name}"), "v1".to_owned())],
                ..ObservedVolume::default()
            })
        };
        pod.class_names.iter().filter_map(of_class).collect()
    }

    /// How often a component's token lapsed.
    pub(crate) fn token_lapses(&self, component: Component) -> u64 {
        let metrics = &self.metrics[&component];
        let page = MetricsPage::build(|registry| metrics.register(registry)).render();
        let line = page.lines().find_map(|it| it.strip_prefix("lanyard_canary_lapses_total "));
        line.unwrap().parse().unwrap()
    }

    /// How often a component's annotation was written.
    pub(crate) fn annotation_writes(&self, component: Component) -> usize {
        self.annotations.0.lock()[&component].1
    }
}

/// The settings that the operator renders for a canary.
fn canary_settings(
    azure: &VirtualTimeAzure,
    component: Component,
    files: &std::path::Path,
) -> CanarySettings {
    let endpoints = Cloud::Public.endpoints().unwrap();
    let cluster = &azure.cluster;
    let line = desired_proof_calls(cluster)[&component].granted.request_line(endpoints);
    let encryption = || {
        let key = &cluster.encryption.as_ref().unwrap().active_key;
        let url =
            format!("https://{}.vault.azure.net/keys/{}/{}", key.vault, key.name, key.version);
        let key = KeyUrl::parse(&url, endpoints).unwrap();
        let file = files.join(Component::Kms.name());
        ProbeSettings::Encryption { key, credential_file: Some(file) }
    };
    let network = || {
        ProbeSettings::Network(NetworkProbeTarget {
            vnet: cluster.azure.vnet.clone().unwrap(),
            security_group: cluster.azure.security_group.clone().unwrap(),
            resource_group: cluster.managed_resource_group(),
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
        credential_location: CredentialFileLocation::File(files.join(component.name())),
        call: Some(GrantedCall::parse(&line, endpoints).unwrap()),
        probes,
        interval: Duration::from_mins(1),
        token_interval: Duration::from_mins(10),
        probe_interval: Duration::from_mins(10),
        failure_threshold: FailureThreshold::HOPS,
    }
}

fn canary_parts(azure: &VirtualTimeAzure, component: Component) -> CanaryDependencies {
    let transport = azure.transport();
    let mut options = TokenTransportOptions::default();
    options.clock = azure.shared_clock();
    options.retry = Some(CanaryDependencies::token_retry());
    options.client.transport = Some(transport.without_rate_limit());
    CanaryDependencies {
        clock: azure.shared_clock(),
        token_transport: TokenTransport::new(options),
        transport,
        metrics: CanaryMetrics::new(component, azure.shared_clock()),
    }
}
