//! Service principals as resources of Microsoft Graph: their properties and their JSON.
//!
//! A service principal shows several properties of its application, for example `appRoles`.

use lanyard_emulator_state::directory::{Application, EntraDirectory, ServicePrincipal};
use serde_json::{Map, Value, json};

use super::application_entity::{INFORMATIONAL_URLS, VERIFIED_PUBLISHER};
use super::credential_json::{key_credentials_json, password_credentials_json};
use super::entity::{GraphEntity, time_text};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::schema::{GraphProperty, PropertyKind, properties, with_defaults};

/// The name of the type in messages.
pub(super) const SERVICE_PRINCIPAL: &str = "ServicePrincipal";

/// The properties of a service principal.
pub(super) const SERVICE_PRINCIPAL_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::read_only("deletedDateTime", PropertyKind::Text),
    GraphProperty::managed("accountEnabled", PropertyKind::Boolean),
    GraphProperty::writable("alternativeNames", PropertyKind::TextList),
    GraphProperty::read_only("appDisplayName", PropertyKind::Text),
    GraphProperty::read_only("appDescription", PropertyKind::Text),
    GraphProperty::managed("appId", PropertyKind::Text),
    GraphProperty::read_only("applicationTemplateId", PropertyKind::Text),
    GraphProperty::read_only("appOwnerOrganizationId", PropertyKind::Text),
    GraphProperty::writable("appRoleAssignmentRequired", PropertyKind::BooleanOr(false)),
    GraphProperty::read_only("createdDateTime", PropertyKind::Text),
    GraphProperty::writable("description", PropertyKind::Text),
    GraphProperty::read_only("disabledByMicrosoftStatus", PropertyKind::Text),
    GraphProperty::managed("displayName", PropertyKind::Text),
    GraphProperty::writable("homepage", PropertyKind::Text),
    GraphProperty::writable("loginUrl", PropertyKind::Text),
    GraphProperty::writable("logoutUrl", PropertyKind::Text),
    GraphProperty::writable("notes", PropertyKind::Text),
    GraphProperty::writable("notificationEmailAddresses", PropertyKind::TextList),
    GraphProperty::writable("preferredSingleSignOnMode", PropertyKind::Text),
    GraphProperty::writable("preferredTokenSigningKeyThumbprint", PropertyKind::Text),
    GraphProperty::writable("replyUrls", PropertyKind::TextList),
    GraphProperty::writable("servicePrincipalNames", PropertyKind::TextList),
    GraphProperty::read_only("servicePrincipalType", PropertyKind::Text),
    GraphProperty::read_only("signInAudience", PropertyKind::Text),
    GraphProperty::writable("tags", PropertyKind::TextList),
    GraphProperty::writable("tokenEncryptionKeyId", PropertyKind::Text),
    GraphProperty::writable("samlSingleSignOnSettings", PropertyKind::Object),
    GraphProperty::read_only("verifiedPublisher", PropertyKind::Structure(VERIFIED_PUBLISHER)),
    GraphProperty::writable("addIns", PropertyKind::ObjectList),
    GraphProperty::writable("appRoles", PropertyKind::ObjectList),
    GraphProperty::writable("info", PropertyKind::Structure(INFORMATIONAL_URLS)),
    GraphProperty::managed("keyCredentials", PropertyKind::ObjectList),
    GraphProperty::writable("oauth2PermissionScopes", PropertyKind::ObjectList),
    GraphProperty::managed("passwordCredentials", PropertyKind::ObjectList),
    GraphProperty::read_only("resourceSpecificApplicationPermissions", PropertyKind::ObjectList),
];

/// The value of a property that follows from the application or the Azure resource, if it does.
fn derived_property(
    principal: &ServicePrincipal,
    application: Option<&Application>,
    name: &str,
) -> Option<Value> {
    let of_application = |property: &str| application?.properties.get(property).cloned();
    let nested = |structure: &str, property: &str| {
        application?.nested_property(structure, property).cloned()
    };
    match name {
        "alternativeNames" => {
            let explicit = match principal.user_assigned_identity() {
                Some(_) => "isExplicit=True",
                None => "isExplicit=False",
            };
            Some(json!([explicit, principal.resource_id()?]))
        }
        "appDescription" => of_application("description"),
        "appDisplayName" => match application {
            Some(application) => Some(json!(application.display_name)),
            None => (!principal.is_managed_identity()).then(|| json!(principal.display_name)),
        },
        "appOwnerOrganizationId" => {
            (!principal.is_managed_identity()).then(|| json!(principal.tenant))
        }
        "appRoles" => of_application("appRoles"),
        "homepage" => nested("web", "homePageUrl"),
        "info" => of_application("info"),
        "logoutUrl" => nested("web", "logoutUrl"),
        "oauth2PermissionScopes" => nested("api", "oauth2PermissionScopes"),
        "replyUrls" => application.map(reply_urls),
        "servicePrincipalType" if principal.is_managed_identity() => Some(json!("ManagedIdentity")),
        "servicePrincipalType" => Some(json!("Application")),
        "signInAudience" => of_application("signInAudience")
            .or_else(|| (!principal.is_managed_identity()).then(|| json!("AzureADMyOrg"))),
        _ => None,
    }
}

fn stored_value<'p>(principal: &'p ServicePrincipal, property: &str) -> FilterValue<'p> {
    FilterValue::stored(&principal.properties, SERVICE_PRINCIPAL_PROPERTIES, property)
}

fn reply_urls(application: &Application) -> Value {
    let lists = ["web", "publicClient", "spa"]
        .map(|structure| application.nested_property(structure, "redirectUris"));
    lists.into_iter().flatten().filter_map(Value::as_array).flatten().cloned().collect()
}

impl GraphEntity for ServicePrincipal {
    const TARGET: FilterTarget = FilterTarget {
        resource: SERVICE_PRINCIPAL,
        type_name: "servicePrincipal",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("appId"),
            FilterableProperty::text("displayName"),
            FilterableProperty::text("appDisplayName").advanced(),
            FilterableProperty::text("appOwnerOrganizationId").advanced(),
            FilterableProperty::text("servicePrincipalType"),
            FilterableProperty::text("preferredSingleSignOnMode"),
            FilterableProperty::boolean("accountEnabled"),
            FilterableProperty::time("createdDateTime").advanced(),
            FilterableProperty::text_list("servicePrincipalNames"),
            FilterableProperty::text_list("alternativeNames"),
            FilterableProperty::text_list("tags"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = SERVICE_PRINCIPAL_PROPERTIES;

    fn id(&self) -> String {
        self.object_id.to_string()
    }

    fn filter_value<'a>(
        &'a self,
        directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "appId" => FilterValue::text(self.client_id.to_string()),
            "displayName" => FilterValue::text(&self.display_name),
            "accountEnabled" => FilterValue::Boolean(self.enabled),
            "createdDateTime" => FilterValue::Time(self.created),
            "servicePrincipalNames" => FilterValue::from(json!(self.names(directory))),
            other if self.properties.contains_key(other) => stored_value(self, other),
            other => {
                let application = directory.application_by_client_id(self.client_id);
                let derived = derived_property(self, application, other);
                derived.map_or_else(|| stored_value(self, other), FilterValue::from)
            }
        }
    }

    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let application = directory.application_by_client_id(self.client_id);
        let derived = SERVICE_PRINCIPAL_PROPERTIES.iter().filter_map(|property| {
            Some((property.name.to_owned(), derived_property(self, application, property.name)?))
        });
        let mut stored: Map<_, _> = derived.collect();
        stored.extend(self.properties.clone());
        let mut json = with_defaults(SERVICE_PRINCIPAL_PROPERTIES, &stored);
        json.extend(properties([
            ("id", json!(self.object_id)),
            ("accountEnabled", json!(self.enabled)),
            ("appId", json!(self.client_id)),
            ("createdDateTime", json!(time_text(self.created))),
            ("displayName", json!(self.display_name)),
            ("servicePrincipalNames", json!(self.names(directory))),
            ("keyCredentials", key_credentials_json(&self.keys)),
            ("passwordCredentials", password_credentials_json(&self.passwords)),
        ]));
        json
    }

    fn expand(&self, directory: &EntraDirectory, relationship: &str) -> Option<Value> {
        match relationship {
            "owners" => Some(super::object_json::objects_json(directory, &self.owners)),
            "memberOf" => Some(super::object_json::groups_json(directory, self.object_id)),
            "appRoleAssignments" => {
                Some(super::app_role_assignments::assignments_json(directory, self.object_id))
            }
            _ => None,
        }
    }
}
