//! Service principals as resources of Microsoft Graph: their properties and their JSON.
//!
//! A service principal shows several properties of its application, for example `appRoles`.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::application_entity::{INFORMATIONAL_URLS, VERIFIED_PUBLISHER};
use super::credential_json::{key_credentials_json, password_credentials_json};
use super::entity::{GraphEntity, time_text};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::schema::{GraphProperty, PropertyKind, with_defaults};
use crate::directory::{Application, EntraDirectory, ServicePrincipal, ServicePrincipalKind};

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

impl ServicePrincipal {
    /// Whether Azure itself manages the service principal: that of a managed identity.
    pub(super) const fn is_managed_identity(&self) -> bool {
        matches!(self.kind, ServicePrincipalKind::ManagedIdentity { .. })
    }

    /// The properties that follow from the application or the Azure resource.
    fn derived_properties(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let application = directory.application_by_client_id(self.client_id);
        let mut derived = Map::new();
        let mut set = |name: &str, value: Value| {
            derived.insert(name.to_owned(), value);
        };
        match &self.kind {
            ServicePrincipalKind::ManagedIdentity { resource_id } => {
                set("servicePrincipalType", json!("ManagedIdentity"));
                let is_explicit = resource_id
                    .resource_type()
                    .is_some_and(|kind| kind.ends_with("/userAssignedIdentities"));
                let explicit = if is_explicit { "isExplicit=True" } else { "isExplicit=False" };
                set("alternativeNames", json!([explicit, resource_id]));
            }
            ServicePrincipalKind::Application => {
                set("servicePrincipalType", json!("Application"));
                set("appDisplayName", json!(self.display_name));
                set("appOwnerOrganizationId", json!(self.tenant));
                set("signInAudience", json!("AzureADMyOrg"));
            }
        }
        let Some(application) = application else { return derived };
        for (name, source) in [
            ("appDescription", "description"),
            ("appRoles", "appRoles"),
            ("info", "info"),
            ("signInAudience", "signInAudience"),
        ] {
            if let Some(value) = application.properties.get(source) {
                set(name, value.clone());
            }
        }
        set("appDisplayName", json!(application.display_name));
        for (name, structure, property) in [
            ("homepage", "web", "homePageUrl"),
            ("logoutUrl", "web", "logoutUrl"),
            ("oauth2PermissionScopes", "api", "oauth2PermissionScopes"),
        ] {
            if let Some(value) = application.nested_property(structure, property) {
                set(name, value.clone());
            }
        }
        set("replyUrls", reply_urls(application));
        derived
    }

    /// The names by which clients look the service principal up: its application id, then its URIs.
    fn names(&self, directory: &EntraDirectory) -> Vec<String> {
        let mut names = vec![self.client_id.to_string()];
        let application = directory.application_by_client_id(self.client_id);
        let registered = application.into_iter().flat_map(|app| app.stored_texts("identifierUris"));
        let own = self.properties.get("servicePrincipalNames").and_then(Value::as_array);
        let own = own.into_iter().flatten().filter_map(Value::as_str);
        for name in registered.chain(own) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        if self.is_managed_identity() {
            let hash = digest(&SHA256, self.object_id.as_bytes());
            names.push(format!("https://identity.azure.net/{}", STANDARD.encode(hash)));
        }
        names
    }
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
            "id" => FilterValue::text(self.object_id.to_string()),
            "appId" => FilterValue::text(self.client_id.to_string()),
            "displayName" | "appDisplayName" => FilterValue::text(&self.display_name),
            "accountEnabled" => FilterValue::Boolean(self.enabled),
            "createdDateTime" => FilterValue::Time(self.created),
            "servicePrincipalNames" => {
                FilterValue::List(self.names(directory).into_iter().map(Into::into).collect())
            }
            "servicePrincipalType" if self.is_managed_identity() => {
                FilterValue::text("ManagedIdentity")
            }
            "servicePrincipalType" => FilterValue::text("Application"),
            "appOwnerOrganizationId" if !self.properties.contains_key(property) => {
                FilterValue::text(self.tenant.as_str())
            }
            "alternativeNames" => match self.resource_id() {
                Some(resource) => FilterValue::List(vec![resource.to_string().into()]),
                None => FilterValue::stored(&self.properties, property),
            },
            other => FilterValue::stored(&self.properties, other),
        }
    }

    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let mut stored = self.derived_properties(directory);
        stored.extend(self.properties.clone());
        let mut json = with_defaults(SERVICE_PRINCIPAL_PROPERTIES, &stored);
        let values = [
            ("id", json!(self.object_id)),
            ("accountEnabled", json!(self.enabled)),
            ("appId", json!(self.client_id)),
            ("createdDateTime", json!(time_text(self.created))),
            ("displayName", json!(self.display_name)),
            ("servicePrincipalNames", json!(self.names(directory))),
            ("keyCredentials", key_credentials_json(&self.keys)),
            ("passwordCredentials", password_credentials_json(&self.passwords)),
        ];
        json.extend(values.map(|(name, value)| (name.to_owned(), value)));
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
