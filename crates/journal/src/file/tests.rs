//! Tests of the file log.
