//! Validation of the Deployment in a template.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use super::json_values::{array_items, drop_nulls};
use super::reserved_names::{ReservedNames, check_deployment_name, reserved_names};
use crate::problem::ValidationProblems;

/// Checks a Deployment and returns it without nulls, status and name.
pub(super) fn check_deployment_template(
    name: &str,
    mut value: Value,
    problems: &mut ValidationProblems,
) -> Option<Value> {
    let path = format!("deployments.{name}");
    check_deployment_name("deployments", name, problems);
    let claims = reserved_names(name)?;
    drop_nulls(&mut value);
    let mut typed = value.clone();
    if let Some(map) = typed.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    if let Err(error) = serde_json::from_value::<Deployment>(typed) {
        let message = error.to_string();
        problems.error_with_hint(path, message, "write a Deployment of `apps/v1`");
        return None;
    }
    let before = problems.iter().count();
    for (field, expected) in
        [("/apiVersion", "apps/v1"), ("/kind", "Deployment"), ("/metadata/name", name)]
    {
        let found = value.pointer(field).and_then(Value::as_str);
        if let Some(found) = found.filter(|found| *found != expected) {
            let message = format!("`{found}` is not `{expected}`");
            let hint = "remove it, or set the required value";
            problems.error_with_hint(join_pointer(&path, field), message, hint);
        }
    }
    if value.pointer("/metadata/namespace").is_some() {
        let message = "a template is for every hosted cluster";
        problems.error_with_hint(
            join_pointer(&path, "/metadata/namespace"),
            message,
            "leave it out",
        );
    }
    check_selector(&path, &value, problems);
    check_pod_spec(&path, &value, &claims, problems);
    check_sidecar_user(&path, &value, &claims, problems);
    if let Some(map) = value.as_object_mut() {
        map.remove("status");
    }
    (problems.iter().count() == before).then_some(value)
}

fn join_pointer(path: &str, pointer: &str) -> String {
    format!("{path}{}", pointer.replace('/', "."))
}

fn check_selector(path: &str, value: &Value, problems: &mut ValidationProblems) {
    let selector = value.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels = value.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let field = format!("{path}.spec.selector.matchLabels");
    match selector.filter(|selector| !selector.is_empty()) {
        None => problems.error_with_hint(field, "Required value", "select the labels of the pods"),
        Some(selector) => {
            for (key, value) in selector {
                if labels.and_then(|labels| labels.get(key)) != Some(value) {
                    problems.error_with_hint(
                        format!("{field}.{key}"),
                        "the pods do not have this label",
                        "add it to spec.template.metadata.labels",
                    );
                }
            }
        }
    }
}

/// Checks that the containers for the credential injection exist and that the template uses no
/// reserved names.
fn check_pod_spec(
    path: &str,
    value: &Value,
    claims: &ReservedNames,
    problems: &mut ValidationProblems,
) {
    let path = format!("{path}.spec.template.spec");
    let pod = value.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let list = |value: &Value, field: &str| array_items(value.get(field).cloned());
    let name =
        |item: &Value| item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let containers = list(&pod, "containers");
    for wanted in &claims.required_containers {
        if !containers.iter().any(|container| name(container) == *wanted) {
            problems.error_with_hint(
                format!("{path}.containers"),
                format!("there is no container `{wanted}`"),
                "the identity is mounted there: rename the container",
            );
        }
    }
    let mut taken = |field: String, text: &str| {
        problems.error_with_hint(
            field,
            format!("`{text}` is reserved for the credential injection"),
            "remove it: lanyard adds it",
        );
    };
    for volume in list(&pod, "volumes") {
        if claims.volumes.contains(name(&volume).as_str()) {
            taken(format!("{path}.volumes"), &name(&volume));
        }
    }
    for container in &containers {
        let name_of = name(container);
        let field = format!("{path}.containers[name={name_of}]");
        let mounts = claims.mounts.get(name_of.as_str());
        for mount in list(container, "volumeMounts") {
            let place = mount.get("mountPath").and_then(Value::as_str).unwrap_or_default();
            if mounts.is_some_and(|paths| paths.contains(place.trim_end_matches('/'))) {
                taken(format!("{field}.volumeMounts"), place);
            }
        }
        let variables = claims.variables.get(name_of.as_str());
        for variable in list(container, "env") {
            if variables.is_some_and(|names| names.contains(name(&variable).as_str())) {
                taken(format!("{field}.env"), &name(&variable));
            }
        }
    }
}

/// The annotation with the pod's required security context constraints, with which `OpenShift`
/// assigns one user to all containers of the pod.
const REQUIRED_SCC_POINTER: &str = "/spec/template/metadata/annotations/openshift.io~1required-scc";

/// A sidecar must run as the user of the main container. The two have different images, so the
/// users that the images set may differ.
fn check_sidecar_user(
    path: &str,
    value: &Value,
    claims: &ReservedNames,
    problems: &mut ValidationProblems,
) {
    let pod = value.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let containers = array_items(pod.get("containers").cloned());
    let container = |name: &str| {
        containers.iter().find(|it| it.get("name").and_then(Value::as_str) == Some(name))
    };
    let has_user = |value: &Value| value.pointer("/securityContext/runAsUser").is_some();
    let is_said = |name: &str| {
        has_user(&pod)
            || value.pointer(REQUIRED_SCC_POINTER).is_some()
            || container(name).is_none_or(has_user)
    };
    let mut added = claims.sidecars.iter().filter(|(name, _)| container(name).is_none());
    if let Some((name, server)) = added.find(|(_, server)| !is_said(server)) {
        problems.error_with_hint(
            format!("{path}.spec.template.spec.securityContext"),
            format!(
                "`{name}` must run as the user of `{server}`, but the template does not set that user"
            ),
            "set `runAsUser` in the pod or the container",
        );
    }
}
