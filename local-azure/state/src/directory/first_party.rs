//! Service principals of Microsoft's own applications, which every tenant has. They are constant data and are
//! not stored.

use jiff::Timestamp;
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use serde_json::{Value, json};
use uuid::{Uuid, uuid};

use super::graph_permission::GraphPermission;
use super::service_principal::{ServicePrincipal, ServicePrincipalKind};
use super::{EntraDirectory, graph_permission};

/// The tenant of Microsoft's applications (`appOwnerOrganizationId`).
pub(super) const MICROSOFT_TENANT: Uuid = uuid!("f8cdef31-a31e-4b4a-93e4-5f571e91255a");

/// The application id of Microsoft Graph.
pub const MICROSOFT_GRAPH: Uuid = uuid!("00000003-0000-0000-c000-000000000000");

/// An application of Microsoft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstPartyApplication {
    /// The application id, the same in every tenant and cloud.
    pub client_id: Uuid,
    pub display_name: &'static str,
    /// The identifier URIs (`servicePrincipalNames`).
    pub(crate) identifier_uris: &'static [&'static str],
}

const MICROSOFT_GRAPH_APPLICATION: FirstPartyApplication = FirstPartyApplication {
    client_id: MICROSOFT_GRAPH,
    display_name: "Microsoft Graph",
    identifier_uris: &["https://graph.microsoft.com", "https://graph.microsoft.com/"],
};

/// The applications whose service principals clients look up.
pub const FIRST_PARTY_APPLICATIONS: [FirstPartyApplication; 10] = [
    MICROSOFT_GRAPH_APPLICATION,
    FirstPartyApplication {
        client_id: uuid!("00000002-0000-0000-c000-000000000000"),
        display_name: "Windows Azure Active Directory",
        identifier_uris: &["https://graph.windows.net"],
    },
    FirstPartyApplication {
        client_id: uuid!("797f4846-ba00-4fd7-ba43-dac1f8f63013"),
        display_name: "Windows Azure Service Management API",
        identifier_uris: &["https://management.azure.com/", "https://management.core.windows.net/"],
    },
    FirstPartyApplication {
        client_id: uuid!("cfa8b339-82a2-471a-a3c9-0fc0be7a4093"),
        display_name: "Azure Key Vault",
        identifier_uris: &["https://vault.azure.net"],
    },
    FirstPartyApplication {
        client_id: uuid!("e406a681-f3d4-42a8-90b6-c2b029497af1"),
        display_name: "Azure Storage",
        identifier_uris: &["https://storage.azure.com/"],
    },
    FirstPartyApplication {
        client_id: uuid!("04b07795-8ddb-461a-bbee-02f9e1bf7b46"),
        display_name: "Microsoft Azure CLI",
        identifier_uris: &[],
    },
    FirstPartyApplication {
        client_id: uuid!("1950a258-227b-4e31-a9cf-717495945fc2"),
        display_name: "Microsoft Azure PowerShell",
        identifier_uris: &[],
    },
    FirstPartyApplication {
        client_id: uuid!("6dae42f8-4368-4678-94ff-3960e28e3630"),
        display_name: "Azure Kubernetes Service AAD Server",
        identifier_uris: &[],
    },
    FirstPartyApplication {
        client_id: uuid!("80faf920-1908-4b52-b5ef-a8e7bedfc67a"),
        display_name: "Azure Kubernetes Service AAD Client",
        identifier_uris: &[],
    },
    FirstPartyApplication {
        client_id: uuid!("f1dd0a37-89c6-4e07-bcd1-ffd3d43d8875"),
        display_name: "Azure Red Hat OpenShift RP",
        identifier_uris: &[],
    },
];

impl FirstPartyApplication {
    /// The object id of the service principal in a tenant.
    pub fn object_id(self, tenant: &EntraTenantId) -> Uuid {
        Uuid::new_v5(&self.client_id, tenant.as_str().to_ascii_lowercase().as_bytes())
    }

    /// The service principal in a tenant.
    pub fn service_principal(self, tenant: &EntraTenantId) -> ServicePrincipal {
        let mut principal = ServicePrincipal::new(
            self.object_id(tenant),
            EntraClientId::from(self.client_id),
            tenant.clone(),
            self.display_name,
            ServicePrincipalKind::Application,
        )
        .created_at(Timestamp::UNIX_EPOCH);
        let properties = [
            ("appOwnerOrganizationId", json!(MICROSOFT_TENANT)),
            ("servicePrincipalNames", json!(self.identifier_uris)),
            ("signInAudience", json!("AzureADMultipleOrgs")),
        ];
        for (name, value) in properties {
            principal.properties.insert(name.to_owned(), value);
        }
        if self.client_id == MICROSOFT_GRAPH {
            principal.properties.insert("appRoles".to_owned(), graph_permission::app_roles());
            let scopes = graph_permission::delegated_scopes();
            principal.properties.insert("oauth2PermissionScopes".to_owned(), scopes);
        }
        principal
    }
}

/// The Microsoft application whose service principal has this object id in a tenant.
pub fn first_party_by_object_id(
    tenant: &EntraTenantId,
    object_id: Uuid,
) -> Option<FirstPartyApplication> {
    FIRST_PARTY_APPLICATIONS.into_iter().find(|known| known.object_id(tenant) == object_id)
}

/// The Microsoft application with this application id.
pub fn first_party_by_client_id(client: EntraClientId) -> Option<FirstPartyApplication> {
    FIRST_PARTY_APPLICATIONS.into_iter().find(|known| known.client_id == client.uuid())
}

/// The object id of the service principal of Microsoft Graph in a tenant.
pub fn graph_principal_id(tenant: &EntraTenantId) -> Uuid {
    MICROSOFT_GRAPH_APPLICATION.object_id(tenant)
}

impl EntraDirectory {
    /// The values of the app roles that a principal has for a resource, for the claim `roles` of its tokens.
    /// `resource` is the object id of the resource's service principal.
    pub fn app_role_values(&self, principal: &ServicePrincipal, resource: Uuid) -> Vec<String> {
        let assigned = self.app_role_assignments_of(principal.object_id);
        let ids: Vec<_> = assigned
            .filter(|assignment| assignment.resource_id == resource)
            .map(|assignment| assignment.app_role_id)
            .collect();
        let role_with = |roles: &Value, id: &Uuid| {
            let role = roles.as_array()?.iter().find(|role| role["id"] == json!(id))?;
            role["value"].as_str().map(ToOwned::to_owned)
        };
        if resource == graph_principal_id(&principal.tenant) {
            let known = ids.into_iter().filter_map(GraphPermission::from_id);
            return known.map(|permission| permission.value().to_owned()).collect();
        }
        let application = self
            .service_principal(resource)
            .and_then(|resource| self.application_by_client_id(resource.client_id));
        let roles = application.and_then(|application| application.properties.get("appRoles"));
        let Some(roles) = roles else { return Vec::new() };
        ids.iter().filter_map(|id| role_with(roles, id)).collect()
    }
}
