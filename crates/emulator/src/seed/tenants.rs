//! Tenants with their signing keys, and the authority of managed identities' certificates.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::TenantId;

use super::certificate::{Leaf, Validity, make_authority, self_signed};
use super::{Seed, SeedError};
use crate::directory::Tenant;

/// The authority that issues the certificates of managed identities: its key in the directory and
/// its common name.
pub(crate) const MSI_AUTHORITY: &str = "Lanyard Emulator MSI Issuing CA";

impl Seed<'_> {
    pub(super) fn add_tenants(&mut self) -> Result<(), SeedError> {
        for id in [&self.plan.tenant, &self.plan.vault.tenant] {
            if self.world.directory.tenant(id.as_str()).is_none() {
                let tenant = self.tenant(id)?;
                self.world.directory.tenants.push(tenant);
            }
        }
        if !self.world.directory.authorities.contains_key(MSI_AUTHORITY) {
            let (key, serial) = (self.keys.take()?, self.ids.uuid());
            let authority = make_authority(MSI_AUTHORITY, key, serial, years(self.now, 10))?;
            self.world.directory.authorities.insert(MSI_AUTHORITY.to_owned(), authority);
        }
        Ok(())
    }

    fn tenant(&mut self, id: &TenantId) -> Result<Tenant, SeedError> {
        let key = self.keys.take()?;
        let certificate = self_signed(&Leaf {
            subject: "accounts.accesscontrol.windows.net",
            serial: self.ids.uuid(),
            validity: years(self.now, 5),
            key: &key,
        })?;
        // Entra names its keys by the SHA-1 thumbprint of their certificates.
        let key_id = URL_SAFE_NO_PAD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &certificate));
        Ok(Tenant { id: id.clone(), domains: Vec::new(), key_id, key, certificate })
    }
}

/// A validity that began a day ago and ends in `years` years.
pub(super) fn years(now: Timestamp, years: i64) -> Validity {
    let day = SignedDuration::from_hours(24);
    Validity {
        not_before: now.checked_sub(day).unwrap_or(now),
        not_after: now.checked_add(day * i32::try_from(365 * years).unwrap_or(365)).unwrap_or(Timestamp::MAX),
    }
}
