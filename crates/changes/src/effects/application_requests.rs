//! Requests to Microsoft Graph for applications with a unique name, and their live bodies.

use lanyard_azure::{AzureCallError, GraphApplication, GraphApplicationBody, GraphClient};
use lanyard_clock::RetryClass;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::accepted_write::WriteProgress;
use crate::creation_evidence::CreationMark;
use crate::effect_error::EffectError;
use crate::live_state::LiveResource;
use crate::ownership_tags::OwnershipTags;
use crate::resource_id::ResourceId;

/// The beginning of the ids of applications, before the unique name.
pub(super) const APPLICATIONS: &str = "entra:applications/";
/// The property of a live body with the object id of the service principal.
pub(super) const SERVICE_PRINCIPAL: &str = "servicePrincipalId";

/// The unique name of an application; `None` for the id of another resource.
pub(super) fn unique_name(id: &ResourceId) -> Option<&str> {
    id.as_str().strip_prefix(APPLICATIONS)
}

/// Reads the application with a unique name, and its service principal.
pub(super) async fn read_application(
    graph: &GraphClient,
    (id, name): (&ResourceId, &str),
) -> Result<Option<LiveResource>, EffectError> {
    let found = graph.application_by_unique_name(name).await?;
    let Some(application) = found else { return Ok(None) };
    let principal = graph.service_principal_object_id(application.app_id).await?;
    Ok(Some(live_application(id.clone(), application_body(&application, principal))))
}

/// Creates what is missing of the application and its service principal. An existing application is not written. Graph
/// accepts the service principal when it knows the application everywhere.
pub(super) async fn create_application(
    graph: &GraphClient,
    name: &str,
    existing: Option<&LiveResource>,
    tags: &OwnershipTags,
) -> Result<WriteProgress, EffectError> {
    let found = match existing {
        Some(_) => graph.application_by_unique_name(name).await?,
        None => None,
    };
    let application = if let Some(found) = found {
        found
    } else {
        let body =
            GraphApplicationBody { tags: tag_texts(tags), ..GraphApplicationBody::new(name) };
        let created = graph.upsert_application(name, &body).await;
        created.map_err(|error| write_error(error, &[404]))?
    };
    let principal = graph.upsert_service_principal(application.app_id).await;
    let principal = principal.map_err(|error| write_error(error, &[400, 403, 404]))?;
    Ok(WriteProgress::Complete(application_body(&application, Some(principal.id))))
}

/// Deletes the application and its service principal. Entra ID keeps both for 30 days.
pub(super) async fn delete_application(
    graph: &GraphClient,
    name: &str,
) -> Result<WriteProgress, EffectError> {
    if let Some(found) = graph.application_by_unique_name(name).await? {
        graph.delete_application(found.id).await?;
    }
    Ok(WriteProgress::Complete(Value::Null))
}

/// A live application. Graph gives each new application an object id.
pub(super) fn live_application(id: ResourceId, body: Value) -> LiveResource {
    let object_id = body["id"].as_str().map(str::to_owned);
    let creation = CreationMark { id: object_id, ..CreationMark::default() };
    LiveResource { id, body, creation, has_tags: true }
}

/// The application without its credentials. Its tags are an object, as in Azure Resource Manager.
fn application_body(application: &GraphApplication, principal: Option<Uuid>) -> Value {
    let pairs = application.tags.iter().filter_map(|text| text.split_once('='));
    let mut body = json!(application);
    body["tags"] = pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    body[SERVICE_PRINCIPAL] = json!(principal);
    body
}

/// The ownership tags as Graph stores them: each as `name=value`.
fn tag_texts(tags: &OwnershipTags) -> Vec<String> {
    tags.pairs().map(|(name, value)| format!("{name}={value}")).into()
}

/// The error of a write. Graph answers with one of the statuses `propagating` until it knows a new object everywhere.
fn write_error(error: AzureCallError, propagating: &[u16]) -> EffectError {
    let is_propagating = error.status().is_some_and(|status| propagating.contains(&status));
    let hint = error.permission_hint(
        "give the signed-in identity the Graph permission `Application.ReadWrite.OwnedBy`",
    );
    let mut error = EffectError::from(error).with_hint(hint);
    if is_propagating {
        error.class = RetryClass::Propagating;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_a_new_application_show_whose_it_is() {
        let tags = OwnershipTags::new("dev", "identities");
        let application = |tags| GraphApplication {
            id: Uuid::from_u128(1),
            app_id: Uuid::from_u128(2).to_string().parse().unwrap(),
            display_name: None,
            unique_name: Some("cpo-dev".to_owned()),
            tags,
            key_credentials: Vec::new(),
        };
        let live = |texts| {
            let id = format!("{APPLICATIONS}cpo-dev").parse().unwrap();
            live_application(id, application_body(&application(texts), None))
        };
        assert_eq!(tag_texts(&tags), ["lanyard-cluster=dev", "lanyard-infra-id=identities"]);
        assert!(tags.are_on(&live(tag_texts(&tags)).body));
        assert!(!tags.are_on(&live(vec!["lanyard-cluster=dev".to_owned(), "x".to_owned()]).body));
        assert_eq!(live(Vec::new()).creation.id, Some(Uuid::from_u128(1).to_string()));
    }
}
