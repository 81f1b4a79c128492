//! Parsing of workload templates.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume,
    VolumeMount,
};
use lanyard_vocabulary::Component;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::deployment::check_deployment_template;
use super::json_values::{array_items, drop_nulls};
use super::reserved_names::{check_deployment_name, reserved_names, templatable_deployments};
use super::{CanaryTemplate, WorkloadTemplates};
use crate::hosted_cluster::encryption_config::KeyRole;
use crate::problem::ValidationProblems;

/// Parses templates and overrides fields of `canary`.
pub(super) fn parse_templates(
    text: &str,
    canary: Map<String, Value>,
) -> Result<WorkloadTemplates, ValidationProblems> {
    let mut problems = ValidationProblems::default();
    let value: Value = match serde_saphyr::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            problems.error_with_hint("", format!("this is not YAML: {error}"), SHAPE_HINT);
            return Err(problems);
        }
    };
    let templates = match value {
        Value::Null => read_templates(override_canary_fields(Map::new(), canary), &mut problems),
        Value::Object(map) => read_templates(override_canary_fields(map, canary), &mut problems),
        _ => {
            problems.error_with_hint("", "the templates are not an object", SHAPE_HINT);
            return Err(problems);
        }
    };
    if problems.has_errors() { Err(problems) } else { Ok(templates) }
}

/// Replaces fields of `canary`; `calls` is merged entry by entry.
fn override_canary_fields(
    mut map: Map<String, Value>,
    mut canary: Map<String, Value>,
) -> Map<String, Value> {
    if canary.is_empty() {
        return map;
    }
    let known = map.entry("canary").or_insert(Value::Null);
    if known.is_null() {
        *known = Value::Object(Map::new());
    }
    // `read_templates` reports a value that is not an object.
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

const SHAPE_HINT: &str =
    "write an object with `canary`, `deployments`, `without` and `podSecurity`";

fn read_templates(map: Map<String, Value>, problems: &mut ValidationProblems) -> WorkloadTemplates {
    let mut reader = TemplateReader { path: String::new(), map, known: Vec::new(), problems };
    let canary = reader.take_field::<Map<String, Value>>("canary").unwrap_or_default();
    let deployments =
        reader.take_field::<BTreeMap<String, Value>>("deployments").unwrap_or_default();
    let without: Vec<String> = reader.take_field("without").unwrap_or_default();
    let pod_security: Option<String> = reader.take_field("podSecurity");
    if let Some(standard) = &pod_security
        && !["privileged", "baseline", "restricted"].contains(&standard.as_str())
    {
        let message = format!("`{standard}` is not a pod security standard");
        reader.error("podSecurity", message, "write `privileged`, `baseline` or `restricted`");
    }
    reader.report_unknown_fields();
    let canary = read_canary(canary, problems);
    for name in &without {
        check_deployment_name("without", name, problems);
    }
    let deployments = deployments
        .into_iter()
        .filter_map(|(name, value)| {
            Some((name.clone(), check_deployment_template(&name, value, problems)?))
        })
        .collect();
    WorkloadTemplates {
        canary,
        deployments,
        excluded_deployments: without.into_iter().collect(),
        pod_security,
    }
}

fn read_canary(map: Map<String, Value>, problems: &mut ValidationProblems) -> CanaryTemplate {
    let mut reader = TemplateReader { path: "canary".to_owned(), map, known: Vec::new(), problems };
    let mut canary = CanaryTemplate::default();
    reader.read_into("image", &mut canary.image);
    reader.read_into("command", &mut canary.command);
    canary.image_pull_policy = reader.take_field("imagePullPolicy");
    reader.read_into("imagePullSecrets", &mut canary.image_pull_secrets);
    reader.read_into("interval", &mut canary.interval);
    reader.read_into("probeInterval", &mut canary.probe_interval);
    reader.read_into("metricsAddress", &mut canary.metrics_address);
    reader.read_into("metricsPort", &mut canary.metrics_port);
    reader.read_into("hostNetwork", &mut canary.host_network);
    reader.read_into("replicas", &mut canary.replicas);
    reader.read_into("labels", &mut canary.labels);
    reader.read_into("annotations", &mut canary.annotations);
    let calls: BTreeMap<String, String> = reader.take_field("calls").unwrap_or_default();
    if let Some(resources) = reader.take_checked_json::<ResourceRequirements>("resources") {
        canary.resources = resources;
    }
    canary.env = array_items(reader.take_checked_json::<Vec<EnvVar>>("env"));
    canary.volumes = array_items(reader.take_checked_json::<Vec<Volume>>("volumes"));
    canary.volume_mounts =
        array_items(reader.take_checked_json::<Vec<VolumeMount>>("volumeMounts"));
    let placement = [
        ("nodeSelector", reader.take_checked_json::<BTreeMap<String, String>>("nodeSelector")),
        ("tolerations", reader.take_checked_json::<Vec<Toleration>>("tolerations")),
        ("affinity", reader.take_checked_json::<Affinity>("affinity")),
        (
            "topologySpreadConstraints",
            reader.take_checked_json::<Vec<TopologySpreadConstraint>>("topologySpreadConstraints"),
        ),
        ("priorityClassName", reader.take_checked_json::<String>("priorityClassName")),
    ];
    canary.placement =
        placement.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    check_canary(&mut reader, &canary);
    canary.calls = read_calls(&mut reader, calls);
    check_reserved_names(&mut reader, &canary);
    reader.report_unknown_fields();
    canary
}

/// Checks that additional volumes, mounts and variables of canaries use no reserved name of any
/// deployment.
fn check_reserved_names(reader: &mut TemplateReader<'_>, canary: &CanaryTemplate) {
    let all: Vec<_> = templatable_deployments().into_iter().filter_map(reserved_names).collect();
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

fn check_canary(reader: &mut TemplateReader<'_>, canary: &CanaryTemplate) {
    if canary.image.trim().is_empty() {
        reader.error("image", "it is empty", "name the image that holds lanyard");
    }
    for (field, text) in [("interval", &canary.interval), ("probeInterval", &canary.probe_interval)]
    {
        if !is_duration(text) {
            let message = format!("`{text}` is not a duration");
            reader.error(field, message, "write a number and `s`, `m` or `h`, such as `60s`");
        }
    }
    if let Some(address) = canary.specific_metrics_address().filter(|_| !canary.host_network) {
        let message =
            format!("the kubelet probes {address} on the node, but the address belongs to the pod");
        reader.error("metricsAddress", message, "leave it out, or set `hostNetwork`");
    }
    let places = u16::try_from(Component::ALL.len()).unwrap_or(u16::MAX);
    if canary.metrics_port == 0 || canary.metrics_port.checked_add(places).is_none() {
        let message = format!("{} leaves no port for every component", canary.metrics_port);
        reader.error("metricsPort", message, "choose a port between 1024 and 65000");
    }
    let last = if canary.host_network { places.saturating_sub(1) } else { 0 };
    let taken = canary.metrics_port..=canary.metrics_port.saturating_add(last);
    let mut ports = [KeyRole::Active, KeyRole::Backup]
        .into_iter()
        .flat_map(|part| [part.health_port(), part.metrics_port()]);
    if let Some(port) = ports.find(|port| taken.contains(port)) {
        let message =
            format!("a KMS plugin uses port {port} in the pod of the API server's canary");
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
    reader: &mut TemplateReader<'_>,
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
            reader.error(&field, format!("`{call}` is not a call"), hint);
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

/// Takes the known fields out of an object; the remaining fields are unknown.
struct TemplateReader<'a> {
    path: String,
    map: Map<String, Value>,
    known: Vec<&'static str>,
    problems: &'a mut ValidationProblems,
}

impl TemplateReader<'_> {
    /// Takes a field; `None` if it is absent or of another type.
    fn take_field<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<T> {
        self.known.push(field);
        let value = self.map.remove(field).filter(|value| !value.is_null())?;
        match serde_json::from_value(value) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(
                    field,
                    error.to_string(),
                    "see the operator's documentation of workload templates",
                );
                None
            }
        }
    }

    /// Like [`TemplateReader::take_field`], but returns the JSON unchanged.
    fn take_checked_json<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<Value> {
        let value = self.map.get(field).cloned();
        self.take_field::<T>(field)?;
        let mut value = value?;
        drop_nulls(&mut value);
        Some(value)
    }

    fn read_into<T: DeserializeOwned>(&mut self, field: &'static str, target: &mut T) {
        if let Some(value) = self.take_field(field) {
            *target = value;
        }
    }

    fn error(&mut self, field: &str, message: impl Into<String>, hint: &str) {
        let field =
            if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) };
        self.problems.error_with_hint(field, message, hint);
    }

    fn report_unknown_fields(mut self) {
        let unknown: Vec<_> = self.map.keys().cloned().collect();
        for field in unknown {
            let hint = format!("known: {}", self.known.join(", "));
            self.error(&field, "unknown field", &hint);
        }
    }
}
