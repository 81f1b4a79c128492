//! The storage accounts with their containers and blobs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::StorageAccount;
use super::blob_etag::BlobEtag;
use super::container::BlobContainer;
use super::stored_blob::StoredBlob;
use crate::table::{BytesTable, StoredTable, Table};
use crate::tracked::Tracked;

/// The key of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerKey {
    /// The host name of the account's Blob service.
    pub host: String,
    pub name: String,
}

/// The key of a blob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobKey {
    pub container: ContainerKey,
    pub name: String,
}

/// The key of a block that is not part of a blob yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StagedBlockKey {
    pub blob: BlobKey,
    /// The id of the block, in base64 as sent.
    pub id: String,
}

/// The text is not a key of the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key has too few parts")]
pub struct ParseBlobKeyError;

impl fmt::Display for ContainerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.name)
    }
}

impl FromStr for ContainerKey {
    type Err = ParseBlobKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, name) = text.split_once('/').ok_or(ParseBlobKeyError)?;
        Ok(Self { host: host.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for BlobKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.container, self.name)
    }
}

impl FromStr for BlobKey {
    type Err = ParseBlobKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, rest) = text.split_once('/').ok_or(ParseBlobKeyError)?;
        let (container, name) = rest.split_once('/').ok_or(ParseBlobKeyError)?;
        Ok(ContainerKey { host: host.to_owned(), name: container.to_owned() }.blob(name))
    }
}

impl ContainerKey {
    /// The key of a blob in this container.
    pub fn blob(&self, name: &str) -> BlobKey {
        BlobKey { container: self.clone(), name: name.to_owned() }
    }
}

/// The storage accounts by the host name of their Blob service, with their content.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlobStore {
    accounts: Table<String, StorageAccount>,
    containers: Table<ContainerKey, BlobContainer>,
    blobs: Table<BlobKey, StoredBlob>,
    contents: BytesTable<BlobKey>,
    /// The blocks that no client has committed. They are not in the state file: a client whose upload the
    /// emulator's stop interrupts uploads them again.
    #[serde(skip)]
    staged_blocks: BTreeMap<StagedBlockKey, Bytes>,
    /// The last entity tag: tags never repeat, even if the clock does not advance.
    last_etag: Tracked<BlobEtag>,
}

impl BlobStore {
    /// Calls `visit` with the name and the content of every stored table.
    pub fn for_each_table(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable)) {
        let Self { accounts, containers, blobs, contents, staged_blocks: _, last_etag } = self;
        visit("storage.accounts", accounts);
        visit("storage.containers", containers);
        visit("storage.blobs", blobs);
        visit("storage.blob-contents", contents);
        visit("storage.last-etag", last_etag);
    }

    /// A new entity tag: the time in units of 100 ns since the year 1, or the successor of the last tag.
    pub fn next_etag(&mut self, now: Timestamp) -> BlobEtag {
        const TICKS_AT_UNIX_EPOCH: i64 = 621_355_968_000_000_000;
        let ticks = now.as_microsecond().saturating_mul(10).saturating_add(TICKS_AT_UNIX_EPOCH);
        let ticks = u64::try_from(ticks).unwrap_or(0);
        let next = BlobEtag(ticks.max(self.last_etag.0 + 1));
        *self.last_etag = next;
        next
    }

    /// The account with a lower-case host name of its Blob service.
    pub fn account(&self, host: &str) -> Option<&StorageAccount> {
        self.accounts.get(host)
    }

    /// The account, mutable.
    pub fn account_mut(&mut self, host: &str) -> Option<&mut StorageAccount> {
        self.accounts.get_mut(host)
    }

    /// Adds an account, or replaces one of the same host name.
    pub fn insert_account(&mut self, account: StorageAccount) {
        self.accounts.insert(account.host.clone(), account);
    }

    /// Every account, by host name.
    pub fn accounts(&self) -> impl Iterator<Item = &StorageAccount> {
        self.accounts.values()
    }

    /// Removes an account with everything in it.
    pub fn remove_account(&mut self, host: &str) {
        self.accounts.remove(host);
        let containers: Vec<_> = self.containers(host, "").map(|(key, _)| key.clone()).collect();
        for container in containers {
            self.remove_container(&container);
        }
    }

    pub fn container(&self, key: &ContainerKey) -> Option<&BlobContainer> {
        self.containers.get(key)
    }

    pub fn container_mut(&mut self, key: &ContainerKey) -> Option<&mut BlobContainer> {
        self.containers.get_mut(key)
    }

    /// Adds a container, or replaces one of the same key.
    pub fn insert_container(&mut self, key: ContainerKey, container: BlobContainer) {
        self.containers.insert(key, container);
    }

    /// The containers of an account, ordered by name, starting at the name `from`.
    pub fn containers(
        &self,
        host: &str,
        from: &str,
    ) -> impl Iterator<Item = (&ContainerKey, &BlobContainer)> {
        let start = ContainerKey { host: host.to_owned(), name: from.to_owned() };
        let host = host.to_owned();
        self.containers.range(start..).take_while(move |(key, _)| key.host == host)
    }

    /// Removes a container with its blobs.
    pub fn remove_container(&mut self, key: &ContainerKey) -> Option<BlobContainer> {
        let removed = self.containers.remove(key)?;
        let blobs: Vec<_> =
            self.blobs(key, Bound::Unbounded).map(|(blob, _)| blob.clone()).collect();
        for blob in blobs {
            self.remove_blob(&blob);
        }
        let staged: Vec<_> = self.staged_blocks_of_container(key).cloned().collect();
        for block in staged {
            self.staged_blocks.remove(&block);
        }
        Some(removed)
    }

    pub fn blob(&self, key: &BlobKey) -> Option<&StoredBlob> {
        self.blobs.get(key)
    }

    pub fn blob_mut(&mut self, key: &BlobKey) -> Option<&mut StoredBlob> {
        self.blobs.get_mut(key)
    }

    /// The content of a blob; clones share it.
    pub fn content(&self, key: &BlobKey) -> Bytes {
        self.contents.get(key).cloned().unwrap_or_default()
    }

    /// Stores a blob, and discards its uncommitted blocks.
    pub fn insert_blob(&mut self, key: BlobKey, blob: StoredBlob, content: Bytes) {
        self.discard_staged_blocks(&key);
        self.contents.insert(key.clone(), content);
        self.blobs.insert(key, blob);
    }

    /// Removes a blob with its uncommitted blocks.
    pub fn remove_blob(&mut self, key: &BlobKey) -> Option<StoredBlob> {
        self.discard_staged_blocks(key);
        self.contents.remove(key);
        self.blobs.remove(key)
    }

    /// The blobs of a container, ordered by name, starting at the name `from`.
    pub fn blobs(
        &self,
        container: &ContainerKey,
        from: Bound<&str>,
    ) -> impl Iterator<Item = (&BlobKey, &StoredBlob)> {
        let start = match from {
            Bound::Included(name) => Bound::Included(container.blob(name)),
            Bound::Excluded(name) => Bound::Excluded(container.blob(name)),
            Bound::Unbounded => Bound::Included(container.blob("")),
        };
        let container = container.clone();
        self.blobs
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.container == container)
    }

    pub fn stage_block(&mut self, key: StagedBlockKey, content: Bytes) {
        self.staged_blocks.insert(key, content);
    }

    pub fn staged_block(&self, key: &StagedBlockKey) -> Option<&Bytes> {
        self.staged_blocks.get(key)
    }

    /// The uncommitted blocks of a blob, by id.
    pub fn staged_blocks(&self, blob: &BlobKey) -> impl Iterator<Item = (&StagedBlockKey, &Bytes)> {
        let start = StagedBlockKey { blob: blob.clone(), id: String::new() };
        let blob = blob.clone();
        self.staged_blocks.range(start..).take_while(move |(key, _)| key.blob == blob)
    }

    /// The keys of the uncommitted blocks of a container, by blob.
    pub fn staged_blocks_of_container(
        &self,
        container: &ContainerKey,
    ) -> impl Iterator<Item = &StagedBlockKey> {
        let start = StagedBlockKey { blob: container.blob(""), id: String::new() };
        let container = container.clone();
        self.staged_blocks
            .range(start..)
            .map(|(key, _)| key)
            .take_while(move |key| key.blob.container == container)
    }

    fn discard_staged_blocks(&mut self, blob: &BlobKey) {
        let staged: Vec<_> = self.staged_blocks(blob).map(|(key, _)| key.clone()).collect();
        for key in staged {
            self.staged_blocks.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_survive_the_state_file(name in ".{1,12}") {
            let container =
                ContainerKey { host: "a.blob.core.windows.net".to_owned(), name: "$root".to_owned() };
            prop_assert_eq!(container.to_string().parse::<ContainerKey>(), Ok(container.clone()));
            let blob = container.blob(&name);
            prop_assert_eq!(blob.to_string().parse::<BlobKey>(), Ok(blob));
        }
    }

    #[test]
    fn entity_tags_never_repeat() {
        let mut store = BlobStore::default();
        let now = Timestamp::UNIX_EPOCH;
        let first = store.next_etag(now);
        assert_eq!(first.to_string(), "0x89F7FF5F7B58000");
        assert!(store.next_etag(now) > first);
    }
}
