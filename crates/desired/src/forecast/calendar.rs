//! A timeline as a calendar that others subscribe to.
//!
//! Source: RFC 5545 (iCalendar), and RFC 7986 for `NAME` and `REFRESH-INTERVAL`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{RenewalMilestone, TimelineEntry};

/// The calendar: an event for each moment that lies ahead, and for each end that has passed.
///
/// `now` is the stamp of every event. The UID of an event says whose and which moment it is, so
/// that a renewal moves the event of a subscriber's calendar and adds none.
pub fn render_icalendar(entries: &[TimelineEntry], now: Timestamp) -> String {
    let mut lines = ICalendarWriter::default();
    for (name, value) in CALENDAR_HEADER {
        lines.write_property(name, value);
    }
    for entry in entries {
        for (at, moment) in entry.forecast.milestones() {
            if at > now || moment == RenewalMilestone::Expiry {
                write_event(&mut lines, entry, moment, (at, now));
            }
        }
    }
    lines.write_property("END", "VCALENDAR");
    lines.0
}

fn write_event(
    lines: &mut ICalendarWriter,
    entry: &TimelineEntry,
    moment: RenewalMilestone,
    (at, now): (Timestamp, Timestamp),
) {
    let TimelineEntry { namespace, cluster, component, .. } = entry;
    let uid = format!("{}.{component}.{cluster}.{namespace}@lanyard.dev", moment.name());
    let summary = format!("{}: {component} of {namespace}/{cluster}", moment.title());
    let hint = entry.hint.map(|hint| format!("\nNext: {hint}.")).unwrap_or_default();
    let description = format!(
        "Identity {component} of the hosted cluster {namespace}/{cluster}: {}.{hint}",
        milestone_description(moment)
    );
    lines.write_property("BEGIN", "VEVENT");
    lines.write_text("UID", &uid);
    lines.write_property("DTSTAMP", &format_date_time(now));
    lines.write_property("DTSTART", &format_date_time(at));
    lines.write_text("SUMMARY", &summary);
    lines.write_text("DESCRIPTION", &description);
    lines.write_property("CATEGORIES", &format!("LANYARD,{}", moment.name().to_ascii_uppercase()));
    // Nobody is busy while a certificate ends.
    lines.write_property("TRANSP", "TRANSPARENT");
    if moment >= RenewalMilestone::LastWrite {
        lines.write_property("BEGIN", "VALARM");
        lines.write_property("ACTION", "DISPLAY");
        lines.write_property("TRIGGER", "-P1D");
        lines.write_text("DESCRIPTION", &summary);
        lines.write_property("END", "VALARM");
    }
    lines.write_property("END", "VEVENT");
}

const fn milestone_description(moment: RenewalMilestone) -> &'static str {
    match moment {
        RenewalMilestone::RenewFrom => {
            "from here on a newer credential is to be expected in the vault"
        }
        RenewalMilestone::OverdueFrom => {
            "if no newer credential is in use by now, its renewal is overdue"
        }
        RenewalMilestone::LastWrite => "what is written to the vault from here on comes too late",
        RenewalMilestone::Expiry => "its credential ends",
    }
}

/// Form 2 of `DATE-TIME`: in UTC.
fn format_date_time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Content lines, folded.
#[derive(Default)]
struct ICalendarWriter(String);

impl ICalendarWriter {
    /// A value of `TEXT`.
    fn write_text(&mut self, name: &str, value: &str) {
        self.write_property(name, &escape_text(value));
    }

    /// A line of at most 75 octets; the rest goes on in lines that begin with a space. A character
    /// is never cut in two.
    fn write_property(&mut self, name: &str, value: &str) {
        let mut octets = 0;
        for letter in name.chars().chain([':']).chain(value.chars()) {
            if octets + letter.len_utf8() > MAX_LINE_OCTETS {
                self.0.push_str("\r\n ");
                octets = 1;
            }
            self.0.push(letter);
            octets += letter.len_utf8();
        }
        self.0.push_str("\r\n");
    }
}

/// RFC 5545 3.3.11. Other control characters may not stand in a calendar.
fn escape_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | ';' | ',' => escaped.extend(['\\', letter]),
            '\n' => escaped.push_str("\\n"),
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// RFC 5545 3.1, the line break not counted.
const MAX_LINE_OCTETS: usize = 75;

const CALENDAR_HEADER: [(&str, &str); 7] = [
    ("BEGIN", "VCALENDAR"),
    ("VERSION", "2.0"),
    ("PRODID", "-//lanyard//forecast//EN"),
    ("CALSCALE", "GREGORIAN"),
    ("METHOD", "PUBLISH"),
    ("NAME", "Azure identities"),
    ("REFRESH-INTERVAL;VALUE=DURATION", "PT1H"),
];

#[cfg(test)]
mod tests;
