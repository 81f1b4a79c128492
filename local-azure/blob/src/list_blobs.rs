//! The list of the blobs of a container, flat or by a delimiter.

use std::collections::BTreeMap;
use std::ops::Bound;

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::store::{BlobKey, BlobStore, ContainerKey};
use lanyard_emulator_state::storage::stored_blob::{BlobKind, StoredBlob};

use super::access::authorize_container;
use super::account_operations::{MAX_PAGE_ITEMS, write_lease, write_metadata};
use super::container_operations::find_container;
use super::error::BlobErrorCode;
use super::http_date::http_date;
use super::permission::BlobPermission;
use super::reply::xml_reply;
use super::request_headers::{parse_include, parse_page_size};
use super::xml_writer::XmlWriter;

/// The values of `include`. Snapshots, versions and deleted blobs never exist.
const INCLUDE: [&str; 11] = [
    "copy",
    "deleted",
    "deletedwithversions",
    "immutabilitypolicy",
    "legalhold",
    "metadata",
    "permissions",
    "snapshots",
    "tags",
    "uncommittedblobs",
    "versions",
];

/// An item of a list.
#[derive(Debug)]
enum ListedItem<'a> {
    Blob(&'a str, &'a StoredBlob),
    /// A blob with blocks that no client has committed.
    Uncommitted(&'a str),
    /// The blobs whose names have this prefix, which ends with the delimiter.
    Prefix(String),
}

/// `GET /{container}?restype=container&comp=list`
pub(super) fn list_blobs(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::LIST_BLOBS)?;
    find_container(call, &key)?;
    let request = call.request;
    let include = parse_include(request, &INCLUDE)?;
    let most = parse_page_size(request, MAX_PAGE_ITEMS)?;
    if request.query("startFrom").is_some() || request.query("endBefore").is_some() {
        return Err(BlobErrorCode::feature_not_supported("startFrom and endBefore"));
    }
    let list = BlobList {
        store: &call.azure().storage,
        container: &key,
        prefix: request.query("prefix").unwrap_or_default(),
        delimiter: request.query("delimiter").filter(|delimiter| !delimiter.is_empty()),
        with_uncommitted: include.contains(&"uncommittedblobs"),
    };
    let (items, next) = list.page(request.query("marker").unwrap_or_default(), most);
    let mut xml = XmlWriter::document();
    let endpoint = format!("{}/", request.origin());
    let attributes = [("ServiceEndpoint", endpoint.as_str()), ("ContainerName", &key.name)];
    xml.open_with_attributes("EnumerationResults", &attributes);
    for (element, parameter) in [
        ("Prefix", "prefix"),
        ("Marker", "marker"),
        ("MaxResults", "maxresults"),
        ("Delimiter", "delimiter"),
    ] {
        xml.optional_element(element, request.query(parameter));
    }
    xml.open("Blobs");
    for item in &items {
        write_item(&mut xml, item, &include, call.now);
    }
    xml.close("Blobs");
    xml.element("NextMarker", next.unwrap_or_default());
    xml.close("EnumerationResults");
    Ok(xml_reply(StatusCode::OK, xml))
}

/// The blobs to list.
struct BlobList<'a> {
    store: &'a BlobStore,
    container: &'a ContainerKey,
    prefix: &'a str,
    delimiter: Option<&'a str>,
    with_uncommitted: bool,
}

impl<'a> BlobList<'a> {
    /// At most `most` items from `marker` on, and the marker of the next page. Blobs with a common prefix are
    /// skipped as a whole.
    fn page(&self, marker: &str, most: usize) -> (Vec<ListedItem<'a>>, Option<String>) {
        let uncommitted = self.uncommitted_names();
        let mut items = Vec::new();
        let mut from = Bound::Included(self.prefix.max(marker).to_owned());
        while let Some((name, blob)) = self.next_blob(&uncommitted, &from) {
            let common = self.common_prefix(name);
            if items.len() == most {
                return (items, Some(common.unwrap_or_else(|| name.to_owned())));
            }
            let next = match &common {
                None => Some(Bound::Excluded(name.to_owned())),
                Some(common) => successor_of_prefix(common).map(Bound::Included),
            };
            items.push(match (common, blob) {
                (Some(common), _) => ListedItem::Prefix(common),
                (None, Some(blob)) => ListedItem::Blob(name, blob),
                (None, None) => ListedItem::Uncommitted(name),
            });
            let Some(next) = next else { break };
            from = next;
        }
        (items, None)
    }

    /// The names of blobs that have only uncommitted blocks.
    fn uncommitted_names(&self) -> BTreeMap<&'a str, &'a BlobKey> {
        if !self.with_uncommitted {
            return BTreeMap::new();
        }
        let staged = self.store.staged_blocks_of_container(self.container);
        staged
            .filter(|key| self.store.blob(&key.blob).is_none())
            .map(|key| (key.blob.name.as_str(), &key.blob))
            .collect()
    }

    fn next_blob(
        &self,
        uncommitted: &BTreeMap<&'a str, &'a BlobKey>,
        from: &Bound<String>,
    ) -> Option<(&'a str, Option<&'a StoredBlob>)> {
        let from = from.as_ref().map(String::as_str);
        let committed = self.store.blobs(self.container, from).next();
        let committed = committed.map(|(key, blob)| (key.name.as_str(), Some(blob)));
        let staged = uncommitted.range::<str, _>((from, Bound::Unbounded)).next();
        let staged = staged.map(|(name, _)| (*name, None));
        let next = committed.into_iter().chain(staged).min_by_key(|(name, _)| *name)?;
        next.0.starts_with(self.prefix).then_some(next)
    }

    /// The name up to the first delimiter after the prefix.
    fn common_prefix(&self, name: &str) -> Option<String> {
        let delimiter = self.delimiter?;
        let at = name[self.prefix.len()..].find(delimiter)?;
        Some(name[..self.prefix.len() + at + delimiter.len()].to_owned())
    }
}

/// The first text after all texts with this prefix; `None` if there is none.
fn successor_of_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<_> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The code points of surrogates are no characters.
        let next =
            if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

fn write_item(xml: &mut XmlWriter, item: &ListedItem<'_>, include: &[&str], now: Timestamp) {
    match item {
        ListedItem::Prefix(prefix) => {
            xml.open("BlobPrefix");
            write_name(xml, prefix);
            xml.close("BlobPrefix");
        }
        ListedItem::Uncommitted(name) => {
            xml.open("Blob");
            write_name(xml, name);
            xml.open("Properties");
            xml.element("Content-Length", "0");
            xml.element("BlobType", "BlockBlob");
            xml.close("Properties");
            xml.close("Blob");
        }
        ListedItem::Blob(name, blob) => {
            xml.open("Blob");
            write_name(xml, name);
            write_properties(xml, blob, include.contains(&"copy"), now);
            if include.contains(&"metadata") {
                write_metadata(xml, &blob.metadata);
            }
            if include.contains(&"tags") && !blob.tags.is_empty() {
                xml.open("Tags");
                super::blob_tags::write_tag_set(xml, &blob.tags);
                xml.close("Tags");
            }
            xml.close("Blob");
        }
    }
}

/// Writes a name, percent-encoded if it has a character that XML cannot contain.
fn write_name(xml: &mut XmlWriter, name: &str) {
    let is_xml = |c: char| c != '\u{fffe}' && c != '\u{ffff}';
    if name.chars().all(is_xml) {
        xml.element("Name", name);
    } else {
        let encoded =
            percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        xml.open_with_attributes("Name", &[("Encoded", "true")]);
        xml.text(&encoded.to_string());
        xml.close("Name");
    }
}

fn write_properties(xml: &mut XmlWriter, blob: &StoredBlob, with_copy: bool, now: Timestamp) {
    let properties = &blob.properties;
    xml.open("Properties");
    xml.element("Creation-Time", http_date(blob.created));
    xml.element("Last-Modified", http_date(blob.last_modified));
    xml.element("Etag", blob.etag.to_string());
    xml.element("Content-Length", blob.length.to_string());
    xml.element("Content-Type", blob.content_type());
    xml.element("Content-Encoding", properties.content_encoding.as_deref().unwrap_or_default());
    xml.element("Content-Language", properties.content_language.as_deref().unwrap_or_default());
    xml.element("Content-MD5", properties.content_md5.as_deref().unwrap_or_default());
    xml.element("Cache-Control", properties.cache_control.as_deref().unwrap_or_default());
    xml.element(
        "Content-Disposition",
        properties.content_disposition.as_deref().unwrap_or_default(),
    );
    xml.element("BlobType", blob.kind.name());
    // Only block blobs have tiers.
    if blob.kind == BlobKind::Block {
        let tier = blob.tier.map(|tier| tier.tier).unwrap_or_default();
        xml.element("AccessTier", tier.name());
        match blob.tier {
            None => xml.element("AccessTierInferred", "true"),
            Some(tier) => xml.element("AccessTierChangeTime", http_date(tier.changed)),
        }
    }
    write_lease(xml, &blob.lease, now);
    if let Some(copy) = blob.copy.as_ref().filter(|_| with_copy) {
        xml.element("CopyId", copy.id.to_string());
        xml.element("CopySource", &copy.source);
        xml.element("CopyStatus", "success");
        xml.element("CopyProgress", format!("{0}/{0}", copy.length));
        xml.element("CopyCompletionTime", http_date(copy.completed));
    }
    xml.element("ServerEncrypted", "true");
    if !blob.tags.is_empty() {
        xml.element("TagCount", blob.tags.len().to_string());
    }
    xml.close("Properties");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_follows_every_text_with_the_prefix() {
        for (prefix, expected) in [
            ("a/", Some("a0")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
        ] {
            assert_eq!(successor_of_prefix(prefix).as_deref(), expected, "{prefix:?}");
        }
    }
}
