//! Federated identity credentials of applications. Those of managed identities are Azure resources.

use http::StatusCode;
use lanyard_emulator_state::directory::{Application, EntraDirectory, FederatedCredential};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::GraphCall;
use super::entity::GraphEntity;
use super::error::{GraphError, GraphResult};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::path::ObjectKey;
use super::query::ListQuery;
use super::replies::{created_reply, entity_reply, list_reply, no_content};
use super::rights::GraphRight;
use super::schema::{GraphProperty, PropertyKind, properties, required_text, store_properties};
use super::tenant_objects::{path_application, path_application_for_write};

/// The largest number of federated credentials of an application.
const MAX_CREDENTIALS: usize = 20;
const CREDENTIAL: &str = "FederatedIdentityCredential";

const CREDENTIAL_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::create_only("name", PropertyKind::Text),
    GraphProperty::writable("issuer", PropertyKind::Text),
    GraphProperty::writable("subject", PropertyKind::Text),
    GraphProperty::writable("description", PropertyKind::Text),
    GraphProperty::writable("audiences", PropertyKind::TextList),
];

/// A federated credential with the object id of its application.
struct ApplicationCredential<'a> {
    application: Uuid,
    credential: &'a FederatedCredential,
}

impl GraphEntity for ApplicationCredential<'_> {
    const TARGET: FilterTarget = FilterTarget {
        resource: CREDENTIAL,
        type_name: "federatedIdentityCredential",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("name"),
            FilterableProperty::text("issuer"),
            FilterableProperty::text("subject"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = CREDENTIAL_PROPERTIES;
    const SORTABLE: &'static [&'static str] = &["name"];

    fn id(&self) -> String {
        self.credential.object_id(self.application).to_string()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "name" => FilterValue::text(&self.credential.name),
            "issuer" => FilterValue::text(&self.credential.issuer),
            "subject" => FilterValue::text(&self.credential.subject),
            _ => FilterValue::Null,
        }
    }

    fn to_json(&self, _directory: &EntraDirectory) -> Map<String, Value> {
        self.properties()
    }
}

impl ApplicationCredential<'_> {
    fn properties(&self) -> Map<String, Value> {
        let credential = self.credential;
        properties([
            ("id", json!(self.id())),
            ("name", json!(credential.name)),
            ("issuer", json!(credential.issuer)),
            ("subject", json!(credential.subject)),
            ("description", json!(credential.description)),
            ("audiences", json!(credential.audiences)),
        ])
    }
}

/// The JSON of all federated credentials of an application.
pub(super) fn credentials_json(application: &Application) -> Value {
    let credentials = application_credentials(application);
    credentials.iter().map(|credential| Value::Object(credential.properties())).collect()
}

fn application_credentials(application: &Application) -> Vec<ApplicationCredential<'_>> {
    let credentials = application.federated_credentials.iter();
    credentials
        .map(|credential| ApplicationCredential { application: application.object_id, credential })
        .collect()
}

pub(super) fn list_credentials(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let application = path_application(call)?;
    let query = ListQuery::parse::<ApplicationCredential<'_>>(call)?;
    let credentials = application_credentials(application);
    list_reply(call, &collection(application), &query, credentials.iter())
}

pub(super) fn get_credential(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let application = path_application(call)?;
    let credential = path_credential(call, application)?;
    let entity = ApplicationCredential { application: application.object_id, credential };
    entity_reply(call, StatusCode::OK, &collection(application), &entity)
}

pub(super) fn create_credential(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let mut application = path_application_for_write(call)?.clone();
    let body = call.body()?;
    let name = required_text(&body, "name", CREDENTIAL)?.to_owned();
    add_credential(call, &mut application, &name, &body)
}

/// Changes a credential. With `Prefer: create-if-missing`, creates the one that the path names.
pub(super) fn update_credential(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let mut application = path_application_for_write(call)?.clone();
    let body = call.body()?;
    let segment = call.path_parameter("child");
    let key = ObjectKey::parse(segment);
    let credential = path_credential(call, &application).cloned();
    if let (Some(name), Err(_)) = (key.alternate("name"), &credential)
        && call.has_header_value("prefer", "create-if-missing")
    {
        return add_credential(call, &mut application, name, &body);
    }
    let mut credential = credential?;
    apply_body(&mut credential, &body, false)?;
    check_unique(&application, &credential)?;
    let stored = application
        .federated_credentials
        .iter_mut()
        .find(|known| known.name == credential.name)
        .ok_or_else(|| GraphError::not_found(segment))?;
    let (holder, name) = (application.object_id, credential.name.clone());
    *stored = credential;
    let now = call.context.now;
    call.directory_mut().insert_application(application);
    call.directory_mut().record_federated_credential(holder, &name, now);
    Ok(no_content())
}

pub(super) fn delete_credential(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let mut application = path_application_for_write(call)?.clone();
    let name = path_credential(call, &application)?.name.clone();
    application.federated_credentials.retain(|known| known.name != name);
    call.directory_mut().insert_application(application);
    Ok(no_content())
}

fn add_credential(
    call: &mut GraphCall<'_, '_>,
    application: &mut Application,
    name: &str,
    body: &Map<String, Value>,
) -> GraphResult {
    check_name(name)?;
    let mut credential = FederatedCredential::new(name, "", "", "");
    credential.id = Some(call.context.ids.next_uuid());
    credential.audiences.clear();
    apply_body(&mut credential, body, true)?;
    let has_name = |known: &FederatedCredential| known.name.eq_ignore_ascii_case(name);
    if application.federated_credentials.iter().any(has_name) {
        return Err(GraphError::new(
            StatusCode::CONFLICT,
            "Request_MultipleObjectsWithSameKeyValue",
            format!("FederatedIdentityCredential with name {name} already exists."),
        ));
    }
    check_unique(application, &credential)?;
    if application.federated_credentials.len() >= MAX_CREDENTIALS {
        return Err(GraphError::bad_request(format!(
            "The application has reached the limit of {MAX_CREDENTIALS} federated identity credentials."
        )));
    }
    let entity =
        ApplicationCredential { application: application.object_id, credential: &credential };
    let reply = created_reply(call, &collection(application), &entity)?;
    let now = call.context.now;
    call.directory_mut().record_federated_credential(application.object_id, name, now);
    application.federated_credentials.push(credential);
    call.directory_mut().insert_application(application.clone());
    Ok(reply)
}

/// Applies the properties of a body, and checks that the credential is complete.
fn apply_body(
    credential: &mut FederatedCredential,
    body: &Map<String, Value>,
    is_new: bool,
) -> Result<(), GraphError> {
    let mut given = Map::new();
    if !is_new && body.get("name").is_some_and(|name| name != credential.name.as_str()) {
        return Err(invalid_credential(
            "Name is immutable and cannot be changed after creation.".to_owned(),
        ));
    }
    let mut body = body.clone();
    body.remove("name");
    if body.contains_key("claimsMatchingExpression") {
        return Err(GraphError::not_implemented(
            "The emulator implements federated identity credentials with a subject, not with a claims matching expression.",
        ));
    }
    store_properties(&mut given, &body, CREDENTIAL_PROPERTIES, CREDENTIAL, is_new)?;
    for (name, slot) in [("issuer", &mut credential.issuer), ("subject", &mut credential.subject)] {
        if let Some(text) = given.get(name).and_then(Value::as_str) {
            text.clone_into(slot);
        }
        if slot.is_empty() {
            return Err(invalid_length(name));
        }
    }
    if let Some(description) = body.get("description") {
        credential.description = description.as_str().map(str::to_owned);
    }
    if let Some(Value::Array(audiences)) = given.get("audiences") {
        credential.audiences =
            audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    match credential.audiences.as_slice() {
        [audience] if !audience.is_empty() => {}
        _ => {
            return Err(invalid_credential(
                "Exactly one audience is required. paramName: FederatedIdentityCredential.audiences"
                    .to_owned(),
            ));
        }
    }
    if let Some(name) = credential.too_long_property() {
        return Err(invalid_length(name));
    }
    if url::Url::parse(&credential.issuer).map_or(true, |url| url.scheme() != "https") {
        return Err(invalid_credential(format!(
            "Issuer must be an https URL. paramName: FederatedIdentityCredential.Issuer, paramValue: {}",
            credential.issuer
        )));
    }
    Ok(())
}

fn invalid_length(property: &str) -> GraphError {
    let most = FederatedCredential::MAX_TEXT;
    invalid_credential(format!(
        "{property} has 1 to {most} characters. paramName: FederatedIdentityCredential.{property}"
    ))
}

fn check_name(name: &str) -> Result<(), GraphError> {
    if FederatedCredential::is_valid_name(name) {
        return Ok(());
    }
    Err(invalid_credential(format!(
        "A name has 3 to 120 letters, digits, '-' and '_', a letter or digit first. paramName: FederatedIdentityCredential.Name, paramValue: {name}"
    )))
}

/// Issuer and subject together are unique within an application.
fn check_unique(
    application: &Application,
    credential: &FederatedCredential,
) -> Result<(), GraphError> {
    let is_twin = |other: &FederatedCredential| {
        other.name != credential.name
            && other.issuer == credential.issuer
            && other.subject == credential.subject
    };
    if !application.federated_credentials.iter().any(is_twin) {
        return Ok(());
    }
    let (issuer, subject) = (&credential.issuer, &credential.subject);
    Err(invalid_credential(format!(
        "The combination of issuer and subject must be unique for the application. Issuer {issuer} and Subject: {subject} already exist. paramName: FederatedIdentityCredential.Subject, paramValue: {subject}, objectType: Microsoft.Online.DirectoryServices.Application"
    )))
}

fn invalid_credential(message: String) -> GraphError {
    GraphError::new(StatusCode::BAD_REQUEST, "InvalidFederatedIdentityCredentialValue", message)
}

/// The credential in the path, by object id or name.
fn path_credential<'a>(
    call: &GraphCall<'_, '_>,
    application: &'a Application,
) -> Result<&'a FederatedCredential, GraphError> {
    let segment = call.path_parameter("child");
    let key = ObjectKey::parse(segment);
    let is_wanted = |known: &&FederatedCredential| match &key {
        ObjectKey::ObjectId(id) => known.object_id(application.object_id) == *id,
        ObjectKey::Alternate(..) => key.alternate("name") == Some(&known.name),
        ObjectKey::Text(name) => known.name == *name,
    };
    let found = application.federated_credentials.iter().find(is_wanted);
    found.ok_or_else(|| GraphError::not_found(segment))
}

fn collection(application: &Application) -> String {
    format!("applications('{}')/federatedIdentityCredentials", application.object_id)
}
