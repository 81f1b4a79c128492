//! The public client applications of Microsoft that every tenant knows.
//!
//! Client ids are those of "Verify first-party Microsoft applications in sign-in reports" and of the clients'
//! own sources: Azure CLI (`azure.cli.core.auth`), azure-identity (`DEVELOPER_SIGN_ON_CLIENT_ID`), Azure
//! PowerShell (`Az.Accounts`), Microsoft Graph PowerShell and kubelogin.

use lanyard_vocabulary::EntraClientId;
use uuid::{Uuid, uuid};

/// A public client application of Microsoft.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PublicClient {
    id: Uuid,
    pub(super) display_name: &'static str,
    /// The delegated permissions of Microsoft Graph that the application has without consent, separated by
    /// spaces.
    pub(super) graph_permissions: &'static str,
}

/// The redirect URIs of every public client: any port of the loopback name, and the page for embedded
/// browsers.
pub(super) const REDIRECT_URIS: [&str; 2] =
    ["http://localhost", "https://login.microsoftonline.com/common/oauth2/nativeclient"];

const BASIC_PERMISSIONS: &str = "User.Read";

const PUBLIC_CLIENTS: [PublicClient; 6] = [
    // Also the default of azure-identity for the sign-in of developers.
    PublicClient {
        id: uuid!("04b07795-8ddb-461a-bbee-02f9e1bf7b46"),
        display_name: "Microsoft Azure CLI",
        graph_permissions: "Application.ReadWrite.All AppRoleAssignment.ReadWrite.All \
                            AuditLog.Read.All DelegatedPermissionGrant.ReadWrite.All \
                            Directory.AccessAsUser.All Group.ReadWrite.All User.Read.All \
                            User.ReadWrite.All",
    },
    PublicClient {
        id: uuid!("1950a258-227b-4e31-a9cf-717495945fc2"),
        display_name: "Microsoft Azure PowerShell",
        graph_permissions: "Application.ReadWrite.All AppRoleAssignment.ReadWrite.All \
                            AuditLog.Read.All Directory.AccessAsUser.All Group.ReadWrite.All \
                            User.ReadWrite.All",
    },
    PublicClient {
        id: uuid!("14d82eec-204b-4c2f-b7e8-296a70dab67e"),
        display_name: "Microsoft Graph Command Line Tools",
        graph_permissions: "User.Read Directory.AccessAsUser.All",
    },
    PublicClient {
        id: uuid!("872cd9fa-d31f-45e0-9eab-6e460a02d1f1"),
        display_name: "Visual Studio",
        graph_permissions: BASIC_PERMISSIONS,
    },
    PublicClient {
        id: uuid!("aebc6443-996d-45c2-90f0-388ff96faa56"),
        display_name: "Visual Studio Code",
        graph_permissions: BASIC_PERMISSIONS,
    },
    PublicClient {
        id: uuid!("80faf920-1908-4b52-b5ef-a8e7bedfc67a"),
        display_name: "Azure Kubernetes Service AAD Client",
        graph_permissions: BASIC_PERMISSIONS,
    },
];

impl PublicClient {
    pub(super) fn find(client: EntraClientId) -> Option<&'static Self> {
        PUBLIC_CLIENTS.iter().find(|known| known.id == client.uuid())
    }

    pub(super) fn client_id(&self) -> EntraClientId {
        self.id.into()
    }
}
