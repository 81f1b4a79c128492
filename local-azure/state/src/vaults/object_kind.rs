//! The kinds of vault objects, and the permissions on them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyVaultObjectKind {
    Secret,
    Key,
    Certificate,
}

impl KeyVaultObjectKind {
    /// The first segment of the paths and ids.
    pub const fn collection(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::Key => "keys",
            Self::Certificate => "certificates",
        }
    }

    /// The first segment of the paths of deleted objects.
    pub const fn deleted_collection(self) -> &'static str {
        match self {
            Self::Secret => "deletedsecrets",
            Self::Key => "deletedkeys",
            Self::Certificate => "deletedcertificates",
        }
    }

    /// The kind as a noun in messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Key => "key",
            Self::Certificate => "certificate",
        }
    }

    /// The kind as a prefix of error codes, and as the first word of messages.
    pub const fn error_code_prefix(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::Key => "Key",
            Self::Certificate => "Certificate",
        }
    }

    /// The error code for an object that does not exist.
    pub const fn not_found_code(self) -> &'static str {
        match self {
            Self::Secret => "SecretNotFound",
            Self::Key => "KeyNotFound",
            Self::Certificate => "CertificateNotFound",
        }
    }
}

/// A permission on vault objects, in both permission models.
#[derive(Debug, Clone, Copy)]
pub struct VaultPermission {
    /// The kind of object.
    pub kind: KeyVaultObjectKind,
    /// The data action of the role model.
    pub action: &'static str,
    /// The permission of the access-policy model.
    pub permission: &'static str,
}

/// The permissions for the operations that all kinds have.
#[derive(Debug, Clone, Copy)]
pub struct ObjectPermissions {
    pub get: VaultPermission,
    pub list: VaultPermission,
    pub delete: VaultPermission,
    pub get_deleted: VaultPermission,
    pub recover: VaultPermission,
    pub purge: VaultPermission,
    pub backup: VaultPermission,
    pub restore: VaultPermission,
}

macro_rules! right {
    ($kind:ident, $action:literal, $permission:literal) => {
        VaultPermission {
            kind: KeyVaultObjectKind::$kind,
            action: concat!("Microsoft.KeyVault/vaults/", $action),
            permission: $permission,
        }
    };
}

// Source of the data actions: the resource provider operations of Microsoft.KeyVault.

pub const SECRET_PERMISSIONS: ObjectPermissions = ObjectPermissions {
    get: right!(Secret, "secrets/getSecret/action", "get"),
    list: right!(Secret, "secrets/readMetadata/action", "list"),
    delete: right!(Secret, "secrets/delete", "delete"),
    get_deleted: right!(Secret, "secrets/readMetadata/action", "get"),
    recover: right!(Secret, "secrets/recover/action", "recover"),
    purge: right!(Secret, "secrets/purge/action", "purge"),
    backup: right!(Secret, "secrets/backup/action", "backup"),
    restore: right!(Secret, "secrets/restore/action", "restore"),
};
pub const SET_SECRET: VaultPermission = right!(Secret, "secrets/setSecret/action", "set");
pub const UPDATE_SECRET: VaultPermission = right!(Secret, "secrets/update/action", "set");

pub const KEY_PERMISSIONS: ObjectPermissions = ObjectPermissions {
    get: right!(Key, "keys/read", "get"),
    list: right!(Key, "keys/read", "list"),
    delete: right!(Key, "keys/delete", "delete"),
    get_deleted: right!(Key, "keys/read", "get"),
    recover: right!(Key, "keys/recover/action", "recover"),
    purge: right!(Key, "keys/purge/action", "purge"),
    backup: right!(Key, "keys/backup/action", "backup"),
    restore: right!(Key, "keys/restore/action", "restore"),
};
pub const CREATE_KEY: VaultPermission = right!(Key, "keys/create/action", "create");
pub const IMPORT_KEY: VaultPermission = right!(Key, "keys/import/action", "import");
pub const UPDATE_KEY: VaultPermission = right!(Key, "keys/update/action", "update");
pub const ENCRYPT: VaultPermission = right!(Key, "keys/encrypt/action", "encrypt");
pub const DECRYPT: VaultPermission = right!(Key, "keys/decrypt/action", "decrypt");
pub const WRAP: VaultPermission = right!(Key, "keys/wrap/action", "wrapKey");
pub const UNWRAP: VaultPermission = right!(Key, "keys/unwrap/action", "unwrapKey");
pub const SIGN: VaultPermission = right!(Key, "keys/sign/action", "sign");
pub const VERIFY: VaultPermission = right!(Key, "keys/verify/action", "verify");
pub const RELEASE_KEY: VaultPermission = right!(Key, "keys/release/action", "release");
pub const ROTATE_KEY: VaultPermission = right!(Key, "keys/rotate/action", "rotate");
pub const GET_ROTATION_POLICY: VaultPermission =
    right!(Key, "keyrotationpolicies/read", "getrotationpolicy");
pub const SET_ROTATION_POLICY: VaultPermission =
    right!(Key, "keyrotationpolicies/write", "setrotationpolicy");

pub const CERTIFICATE_PERMISSIONS: ObjectPermissions = ObjectPermissions {
    get: right!(Certificate, "certificates/read", "get"),
    list: right!(Certificate, "certificates/read", "list"),
    delete: right!(Certificate, "certificates/delete", "delete"),
    get_deleted: right!(Certificate, "certificates/read", "get"),
    recover: right!(Certificate, "certificates/recover/action", "recover"),
    purge: right!(Certificate, "certificates/purge/action", "purge"),
    backup: right!(Certificate, "certificates/backup/action", "backup"),
    restore: right!(Certificate, "certificates/restore/action", "restore"),
};
pub const CREATE_CERTIFICATE: VaultPermission =
    right!(Certificate, "certificates/create/action", "create");
pub const IMPORT_CERTIFICATE: VaultPermission =
    right!(Certificate, "certificates/import/action", "import");
pub const UPDATE_CERTIFICATE: VaultPermission =
    right!(Certificate, "certificates/update/action", "update");
pub const MANAGE_CONTACTS: VaultPermission =
    right!(Certificate, "certificatecontacts/write", "managecontacts");
pub const LIST_ISSUERS: VaultPermission = right!(Certificate, "certificatecas/read", "listissuers");
pub const GET_ISSUER: VaultPermission = right!(Certificate, "certificatecas/read", "getissuers");
pub const SET_ISSUER: VaultPermission = right!(Certificate, "certificatecas/write", "setissuers");
pub const DELETE_ISSUER: VaultPermission =
    right!(Certificate, "certificatecas/delete", "deleteissuers");
