// Counts the copies between host and GPU that a program makes through the CUDA driver, and prints
// them when it ends. For programs that look up the driver's functions by name at run time:
//
//   cc -shared -fPIC -O1 host_copies.c -o host_copies.so -ldl
//   HOST_COPIES=counts.txt LD_PRELOAD=./host_copies.so lra run ...
//
// The file gets one line: copies to the GPU, their bytes, copies from the GPU, their bytes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*to_gpu)(unsigned long long, const void *, size_t, void *);
typedef int (*from_gpu)(void *, unsigned long long, size_t, void *);
typedef void *(*lookup)(void *, const char *);

static atomic_ulong copies[2], bytes[2];
static to_gpu copy_to, copy_to_async;
static from_gpu copy_from, copy_from_async;

static void count(int direction, size_t size) {
  atomic_fetch_add(&copies[direction], 1);
  atomic_fetch_add(&bytes[direction], size);
}

// The functions without a stream ignore their last argument.
static int counted_to(unsigned long long to, const void *from, size_t size, void *stream) {
  count(0, size);
  return copy_to(to, from, size, stream);
}

static int counted_to_async(unsigned long long to, const void *from, size_t size, void *stream) {
  count(0, size);
  return copy_to_async(to, from, size, stream);
}

static int counted_from(void *to, unsigned long long from, size_t size, void *stream) {
  count(1, size);
  return copy_from(to, from, size, stream);
}

static int counted_from_async(void *to, unsigned long long from, size_t size, void *stream) {
  count(1, size);
  return copy_from_async(to, from, size, stream);
}

static lookup real_dlsym(void) {
  static lookup real;
  if (!real) real = (lookup)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (!real) real = (lookup)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  return real;
}

void *dlsym(void *library, const char *name) {
  void *found = real_dlsym()(library, name);
  if (!found) return found;
  if (!strcmp(name, "cuMemcpyHtoD_v2")) return copy_to = (to_gpu)found, (void *)counted_to;
  if (!strcmp(name, "cuMemcpyHtoDAsync_v2"))
    return copy_to_async = (to_gpu)found, (void *)counted_to_async;
  if (!strcmp(name, "cuMemcpyDtoH_v2")) return copy_from = (from_gpu)found, (void *)counted_from;
  if (!strcmp(name, "cuMemcpyDtoHAsync_v2"))
    return copy_from_async = (from_gpu)found, (void *)counted_from_async;
  return found;
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("HOST_COPIES");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%lu %lu %lu %lu\n", copies[0], bytes[0], copies[1], bytes[1]);
  fclose(file);
}
