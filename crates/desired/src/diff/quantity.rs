//! Kubernetes quantities, which the API server normalizes.

use serde_json::Value;

/// Returns whether two quantities are equal, such as `0.5` and `500m`, or `1Gi` and `1024Mi`.
pub(super) fn same_quantity(one: &Value, other: &Value) -> bool {
    match (parse_thousandths(one), parse_thousandths(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Returns the quantity in thousandths.
fn parse_thousandths(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let thousandths = digits.checked_mul(suffix_factor(suffix)?)?;
    Some(thousandths.div_euclid(scale) + i128::from(thousandths.rem_euclid(scale) != 0))
}

/// Returns the factor of a suffix in thousandths.
fn suffix_factor(suffix: &str) -> Option<i128> {
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
    let power = |base: i128, list: &[&str]| {
        let index = list.iter().position(|known| *known == suffix)?;
        base.checked_pow(u32::try_from(index).ok()?)
    };
    power(1000, &DECIMAL).or_else(|| power(1024, &BINARY)?.checked_mul(1000))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_compared_and_not_their_texts() {
        let same = [
            (json!("0.5"), json!("500m")),
            (json!(0.5), json!("500m")),
            (json!(2), json!("2")),
            (json!("1Gi"), json!("1024Mi")),
            (json!("1k"), json!("1000")),
            (json!("1.5Gi"), json!("1536Mi")),
        ];
        for (one, other) in same {
            assert!(same_quantity(&one, &other), "{one} {other}");
        }
        let different = [
            (json!("1G"), json!("1Gi")),
            (json!("1"), json!("1m")),
            (json!("x"), json!("x")),
            (json!(""), json!("")),
            (json!("1Zi"), json!("1Zi")),
        ];
        for (one, other) in different {
            assert!(!same_quantity(&one, &other), "{one} {other}");
        }
    }
}
