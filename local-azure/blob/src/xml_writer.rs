//! XML documents that the Blob service writes.

use lanyard_emulator_state::request::ServiceReply;
use quick_xml::escape::escape;

/// Writes an XML document.
#[derive(Debug)]
pub(super) struct XmlWriter(String);

impl XmlWriter {
    /// Starts a document.
    pub(super) fn document() -> Self {
        Self("<?xml version=\"1.0\" encoding=\"utf-8\"?>".to_owned())
    }

    pub(super) fn open(&mut self, name: &str) {
        self.open_with_attributes(name, &[]);
    }

    pub(super) fn open_with_attributes(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.0.push('<');
        self.0.push_str(name);
        for (attribute, value) in attributes {
            self.0.push(' ');
            self.0.push_str(attribute);
            self.0.push_str("=\"");
            self.0.push_str(&escape(*value));
            self.0.push('"');
        }
        self.0.push('>');
    }

    pub(super) fn text(&mut self, text: &str) {
        self.0.push_str(&escape(text));
    }

    pub(super) fn close(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    /// An element with text.
    pub(super) fn element(&mut self, name: &str, text: impl AsRef<str>) {
        self.open(name);
        self.0.push_str(&escape(text.as_ref()));
        self.close(name);
    }

    /// An element with text, if there is one.
    pub(super) fn optional_element(&mut self, name: &str, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.element(name, text);
        }
    }

    /// Makes the document the body of a reply.
    pub(super) fn into_reply(self, reply: ServiceReply) -> ServiceReply {
        reply.with_body("application/xml", self.0)
    }
}
