//! Reading templates, with every problem at its field.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume,
    VolumeMount,
};
use lanyard_vocabulary::Component;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::claims::{claims, known_deployments};
use super::deployment::deployment;
use super::{CanaryTemplate, WorkloadTemplates};
use crate::hosted_cluster::encryption_config::KeyPart;
use crate::problem::Problems;

/// The templates of a text, with these fields of `canary` in the place of its own.
pub(super) fn templates(
    text: &str,
    canary: Map<String, Value>,
) -> Result<WorkloadTemplates, Problems> {
    let mut problems = Problems::default();
    let value: Value = match serde_saphyr::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            problems.error_with_hint("", format!("this is not YAML: {error}"), SHAPE);
            return Err(problems);
        }
    };
    let templates = match value {
        Value::Null => whole(over(Map::new(), canary), &mut problems),
        Value::Object(map) => whole(over(map, canary), &mut problems),
        _ => {
            problems.error_with_hint("", "the templates are not an object", SHAPE);
            return Err(problems);
        }
    };
    if problems.has_errors() { Err(problems) } else { Ok(templates) }
}

/// Fields of `canary` win over those of the map; of calls each by itself does.
fn over(mut map: Map<String, Value>, mut canary: Map<String, Value>) -> Map<String, Value> {
    if canary.is_empty() {
        return map;
    }
    let known = map.entry("canary").or_insert(Value::Null);
    if known.is_null() {
        *known = Value::Object(Map::new());
    }
    // What is no object is told where it is read.
    let Value::Object(known) = known else { return map };
    if let (Some(Value::Object(old)), Some(Value::Object(new))) =
        (known.get_mut("calls"), canary.get_mut("calls"))
    {
        old.append(new);
        canary.remove("calls");
    }
    known.append(&mut canary);
    map
}

const SHAPE: &str = "write an object with `canary`, `deployments`, `without` and `podSecurity`";

fn whole(map: Map<String, Value>, problems: &mut Problems) -> WorkloadTemplates {
    let mut reader = Reader { path: String::new(), map, known: Vec::new(), problems };
    let canary = reader.take::<Map<String, Value>>("canary").unwrap_or_default();
    let deployments = reader.take::<BTreeMap<String, Value>>("deployments").unwrap_or_default();
    let without: Vec<String> = reader.take("without").unwrap_or_default();
    let pod_security: Option<String> = reader.take("podSecurity");
    if let Some(standard) = &pod_security
        && !["privileged", "baseline", "restricted"].contains(&standard.as_str())
    {
        let message = format!("`{standard}` is no pod security standard");
        reader.error("podSecurity", message, "write `privileged`, `baseline` or `restricted`");
    }
    reader.finish();
    let canary = read_canary(canary, problems);
    for name in &without {
        check_name("without", name, problems);
    }
    let deployments = deployments
        .into_iter()
        .filter_map(|(name, value)| Some((name.clone(), deployment(&name, value, problems)?)))
        .collect();
    WorkloadTemplates { canary, deployments, without: without.into_iter().collect(), pod_security }
}

fn read_canary(map: Map<String, Value>, problems: &mut Problems) -> CanaryTemplate {
    let mut reader = Reader { path: "canary".to_owned(), map, known: Vec::new(), problems };
    let mut canary = CanaryTemplate::default();
    reader.set("image", &mut canary.image);
    reader.set("command", &mut canary.command);
    canary.image_pull_policy = reader.take("imagePullPolicy");
    reader.set("imagePullSecrets", &mut canary.image_pull_secrets);
    reader.set("interval", &mut canary.interval);
    reader.set("probeInterval", &mut canary.probe_interval);
    reader.set("metricsAddress", &mut canary.metrics_address);
    reader.set("metricsPort", &mut canary.metrics_port);
    reader.set("hostNetwork", &mut canary.host_network);
    reader.set("replicas", &mut canary.replicas);
    reader.set("labels", &mut canary.labels);
    reader.set("annotations", &mut canary.annotations);
    let calls: BTreeMap<String, String> = reader.take("calls").unwrap_or_default();
    if let Some(resources) = reader.checked::<ResourceRequirements>("resources") {
        canary.resources = resources;
    }
    canary.env = items(reader.checked::<Vec<EnvVar>>("env"));
    canary.volumes = items(reader.checked::<Vec<Volume>>("volumes"));
    canary.volume_mounts = items(reader.checked::<Vec<VolumeMount>>("volumeMounts"));
    let placement = [
        ("nodeSelector", reader.checked::<BTreeMap<String, String>>("nodeSelector")),
        ("tolerations", reader.checked::<Vec<Toleration>>("tolerations")),
        ("affinity", reader.checked::<Affinity>("affinity")),
        (
            "topologySpreadConstraints",
            reader.checked::<Vec<TopologySpreadConstraint>>("topologySpreadConstraints"),
        ),
        ("priorityClassName", reader.checked::<String>("priorityClassName")),
    ];
    canary.placement =
        placement.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    check_canary(&mut reader, &canary);
    canary.calls = read_calls(&mut reader, calls);
    check_free(&mut reader, &canary);
    reader.finish();
    canary
}

/// What canaries get besides must leave free what identities are brought by, in every deployment.
fn check_free(reader: &mut Reader<'_>, canary: &CanaryTemplate) {
    let all: Vec<_> = known_deployments().into_iter().filter_map(claims).collect();
    let mounts: BTreeSet<_> =
        all.iter().flat_map(|claims| claims.mounts.values().flatten()).collect();
    let variables: BTreeSet<_> =
        all.iter().flat_map(|claims| claims.variables.values().flatten()).collect();
    let text = |item: &Value, field: &str| {
        item.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut taken = Vec::new();
    for volume in &canary.volumes {
        let name = text(volume, "name");
        if all.iter().any(|claims| claims.volumes.contains(name.as_str())) {
            taken.push(("volumes", name));
        }
    }
    for mount in &canary.volume_mounts {
        let path = text(mount, "mountPath");
        if mounts.contains(&path.trim_end_matches('/')) {
            taken.push(("volumeMounts", path));
        }
    }
    for variable in &canary.env {
        let name = text(variable, "name");
        if variables.contains(&name.as_str())
            || ["POD_NAME", "POD_NAMESPACE"].contains(&name.as_str())
        {
            taken.push(("env", name));
        }
    }
    for (field, name) in taken {
        reader.error(field, format!("`{name}` is taken"), "choose another name");
    }
}

pub(super) fn items(list: Option<Value>) -> Vec<Value> {
    match list {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn check_canary(reader: &mut Reader<'_>, canary: &CanaryTemplate) {
    if canary.image.trim().is_empty() {
        reader.error("image", "it is empty", "name the image that holds lanyard");
    }
    for (field, text) in [("interval", &canary.interval), ("probeInterval", &canary.probe_interval)]
    {
        if !is_duration(text) {
            let message = format!("`{text}` is no duration");
            reader.error(field, message, "write a number and `s`, `m` or `h`, such as `60s`");
        }
    }
    if let Some(address) = canary.certain_address().filter(|_| !canary.host_network) {
        let message = format!("the kubelet asks for {address} at the node, and it is the pod's");
        reader.error("metricsAddress", message, "leave it out, or set `hostNetwork`");
    }
    let places = u16::try_from(Component::ALL.len()).unwrap_or(u16::MAX);
    if canary.metrics_port == 0 || canary.metrics_port.checked_add(places).is_none() {
        let message = format!("{} leaves no port for every component", canary.metrics_port);
        reader.error("metricsPort", message, "choose a port between 1024 and 65000");
    }
    let last = if canary.host_network { places.saturating_sub(1) } else { 0 };
    let taken = canary.metrics_port..=canary.metrics_port.saturating_add(last);
    let mut ports = [KeyPart::Active, KeyPart::Backup]
        .into_iter()
        .flat_map(|part| [part.health_port(), part.metrics_port()]);
    if let Some(port) = ports.find(|port| taken.contains(port)) {
        let message =
            format!("a plugin of a key has port {port} beside the canary of the API server");
        reader.error(
            "metricsPort",
            message,
            "choose one from which 9 ports are free, such as 9464",
        );
    }
}

fn is_duration(text: &str) -> bool {
    let number = text.strip_suffix(['s', 'm', 'h']).unwrap_or_default();
    !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) && !number.starts_with('0')
}

fn read_calls(
    reader: &mut Reader<'_>,
    calls: BTreeMap<String, String>,
) -> BTreeMap<Component, String> {
    let mut read = BTreeMap::new();
    for (name, call) in calls {
        let field = format!("calls.{name}");
        let is_call = call.split_once(' ').is_some_and(|(method, url)| {
            method == "GET" && url.starts_with("https://") && url::Url::parse(url).is_ok()
        });
        if !call.is_empty() && !is_call {
            let hint = "write `GET https://…` with the api-version, or an empty text for no call";
            reader.error(&field, format!("`{call}` is no call"), hint);
        }
        match name.parse::<Component>() {
            Ok(component) => drop(read.insert(component, call)),
            Err(error) => {
                reader.error(&field, error.to_string(), "name a component of the HostedCluster");
            }
        }
    }
    read
}

pub(super) fn check_name(field: &str, name: &str, problems: &mut Problems) {
    let known = known_deployments();
    if !known.contains(name) {
        let known: Vec<_> = known.into_iter().collect();
        problems.error_with_hint(
            field,
            format!("`{name}` is no deployment that an identity goes to"),
            format!("known: {}", known.join(", ")),
        );
    }
}

/// A null in a template means that the field is not there.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Takes the fields of an object one by one; what is left over is not known.
struct Reader<'a> {
    path: String,
    map: Map<String, Value>,
    known: Vec<&'static str>,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    /// The value of a field, if it is there and of the type.
    fn take<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<T> {
        self.known.push(field);
        let value = self.map.remove(field).filter(|value| !value.is_null())?;
        match serde_json::from_value(value) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(field, error.to_string(), "see the page about the operator");
                None
            }
        }
    }

    /// As [`Reader::take`], with the JSON as it came.
    fn checked<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<Value> {
        let value = self.map.get(field).cloned();
        self.take::<T>(field)?;
        let mut value = value?;
        drop_nulls(&mut value);
        Some(value)
    }

    fn set<T: DeserializeOwned>(&mut self, field: &'static str, target: &mut T) {
        if let Some(value) = self.take(field) {
            *target = value;
        }
    }

    fn error(&mut self, field: &str, message: impl Into<String>, hint: &str) {
        let field =
            if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) };
        self.problems.error_with_hint(field, message, hint);
    }

    fn finish(mut self) {
        let unknown: Vec<_> = self.map.keys().cloned().collect();
        for field in unknown {
            let hint = format!("known: {}", self.known.join(", "));
            self.error(&field, "the field is not known", &hint);
        }
    }
}
