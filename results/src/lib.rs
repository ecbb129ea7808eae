//! Records of runs, and the tables made from them.
