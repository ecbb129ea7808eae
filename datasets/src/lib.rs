//! The tasks of the Long Range Arena as plain integers: generators, readers, and the on-disk store.
