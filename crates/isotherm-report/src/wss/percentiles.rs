//! Percentiles.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The percentiles that reports show.
pub const PERCENTILES: [u32; 7] = [0, 25, 50, 75, 90, 99, 100];

/// Values at [`PERCENTILES`], by the nearest-rank method: the smallest value that at least that share of all values
/// does not exceed. Each is one of the values. Values that hold for different times are weighted with them: the
/// smallest value that is not exceeded for at least that share of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles<T>(pub [T; 7]);

impl<T: Copy + Default + PartialOrd> Percentiles<T> {
    /// The percentiles of some values. All are the default value if there are no values.
    pub fn of(mut values: Vec<T>) -> Self {
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        Self(PERCENTILES.map(|p| {
            let rank = (u64::from(p) * values.len() as u64).div_ceil(100).max(1);
            values.get(rank as usize - 1).copied().unwrap_or_default()
        }))
    }

    /// The percentiles of values with weights, such as the time for which each held. Values without weight do not
    /// count, unless all are without.
    pub fn weighted(values: Vec<(T, f64)>) -> Self {
        let total: f64 = values.iter().map(|(_, weight)| weight).sum();
        if total <= 0.0 {
            return Self::of(values.into_iter().map(|(value, _)| value).collect());
        }
        let sums = summed(values);
        Self(PERCENTILES.map(|p| at(&sums, f64::from(p) / 100.0).unwrap_or_default()))
    }

    /// Each percentile with its value.
    pub fn iter(&self) -> impl Iterator<Item = (u32, T)> {
        PERCENTILES.into_iter().zip(self.0)
    }

    /// The median.
    pub fn median(&self) -> T {
        self.0[2]
    }
}

/// The smallest of some values with weights that is not exceeded for at least this share of the weight. The default
/// value if none has a weight.
pub(crate) fn weighted_at<T: Copy + Default + PartialOrd>(values: Vec<(T, f64)>, share: f64) -> T {
    at(&summed(values), share).unwrap_or_default()
}

/// The values that have a weight in their order, each with the sum of the weights up to it.
fn summed<T: PartialOrd>(mut values: Vec<(T, f64)>) -> Vec<(T, f64)> {
    values.retain(|&(_, weight)| weight > 0.0);
    values.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let mut sum = 0.0;
    for (_, weight) in &mut values {
        sum += *weight;
        *weight = sum;
    }
    values
}

fn at<T: Copy>(sums: &[(T, f64)], share: f64) -> Option<T> {
    let (_, total) = sums.last()?;
    // Sums of fractions are not exact.
    let least = total * (share - 1e-9);
    let rank = sums.partition_point(|&(_, sum)| sum < least).min(sums.len() - 1);
    Some(sums[rank].0)
}

impl<T: Copy + Serialize> Serialize for Percentiles<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(PERCENTILES.len()))?;
        for (p, value) in PERCENTILES.iter().zip(self.0) {
            map.serialize_entry(&p.to_string(), &value)?;
        }
        map.end()
    }
}

impl<T: JsonSchema> JsonSchema for Percentiles<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("PercentilesOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names = PERCENTILES.map(|p| p.to_string());
        let value = generator.subschema_for::<T>();
        let properties: serde_json::Map<_, _> = names.iter().map(|name| (name.clone(), value.clone().into())).collect();
        json_schema!({ "type": "object", "properties": properties, "required": names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_for_as_long_as_it_held() {
        let equal = [15, 20, 35, 40, 50];
        assert_eq!(Percentiles::weighted(equal.map(|value| (value, 0.1)).into()), Percentiles::of(equal.into()));
        assert_eq!(
            Percentiles::weighted((1..=100).map(|value| (value, 0.3)).collect()).0,
            [1, 25, 50, 75, 90, 99, 100]
        );
        assert_eq!(Percentiles::weighted(vec![(9, 1.0), (1, 8.0), (5, 1.0), (7, 0.0)]).0, [1, 1, 1, 1, 5, 9, 9]);
        assert_eq!(Percentiles::<u64>::weighted(vec![]).0, [0; 7]);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        assert_eq!(Percentiles::of((1..=100).rev().collect()).0, [1, 25, 50, 75, 90, 99, 100]);
        assert_eq!(Percentiles::of(vec![15, 20, 35, 40, 50]).0, [15, 20, 35, 40, 50, 50, 50]);
        assert_eq!(Percentiles::of(vec![7]).0, [7; 7]);
        assert_eq!(Percentiles::<u64>::of(vec![]).0, [0; 7]);
    }
}
