// Sketches of documents (Fast Similarity Sketching) and the keys of their bands, one block of threads for each document: the same
// keys as kernels/sketch/band_keys.py gives on the CPU, for shingles of characters.
//
// Written so that a C++ compiler takes it, too: there the threads of a block run one after the other, phase by phase, and a test compares
// this very file with the CPU's kernel. Nothing that a thread keeps for itself outlives a phase.
//
// A thread takes the shingles that begin in its range of bytes. Hashes of short documents stay in shared memory for the rounds that fill
// empty bins; those of longer ones, which hardly ever have empty bins, are computed again. Set when it is compiled: BINS, ROWS, WIDE.
// A document that is not well-formed UTF-8 gets -1 shingles: the CPU does it.
#ifdef __CUDACC_RTC__
#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
#define SHARED __shared__
#define SYNC __syncthreads()
#define EACH_THREAD(tid) for (int tid = threadIdx.x, once = 1; once; once = 0)
#define EACH_DOCUMENT(row, n) for (i64 row = blockIdx.x; row < n; row += gridDim.x)
#else
#define DEVICE static inline
#define KERNEL extern "C" void
#define SHARED static
#define SYNC
#define EACH_THREAD(tid) for (int tid = 0; tid < THREADS; tid++)
#define EACH_DOCUMENT(row, n) for (i64 row = 0; row < n; row++)
#endif
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned char u8;

#define THREADS 128
#define CACHED 3072
#define BASE 0x6A09E667F3BCC90Dull
#define POINT 0xBB67AE8584CAA73Bull
#define GOLDEN 0x9E3779B97F4A7C15ull
#define P1 0x9E3779B185EBCA87ull
#define P2 0xC2B2AE3D27D4EB4Full
#define NONE 0xFFFFFFFFFFFFFFFFull
#define EMPTY 0x7FFFFFFF
#define BANDS (BINS / ROWS)

DEVICE u64 mix(u64 x) {
  x = (x ^ (x >> 32)) * 0xFF51AFD7ED558CCDull;
  x = (x ^ (x >> 29)) * 0xC4CEB9FE1A85EC53ull;
  return x ^ (x >> 32);
}
DEVICE u64 salt(u64 seed, u64 round) { return mix(seed + round * GOLDEN); }
DEVICE int bin_of(u64 h) { return (int)((h & 0xFFFFFFFFull) * (u64)BINS >> 32); }
DEVICE void lower(u64* at, u64 h) {
#ifdef __CUDACC_RTC__
  if (h < *(volatile u64*)at) atomicMin(at, h);
#else
  if (h < *at) *at = h;
#endif
}
DEVICE void count(int* at, int n) {
#ifdef __CUDACC_RTC__
  atomicAdd(at, n);
#else
  *at += n;
#endif
}
DEVICE void fill(int* round_at, int round, int* n_empty) {
#ifdef __CUDACC_RTC__
  if (atomicExch(round_at, round) != round) atomicSub(n_empty, 1);
#else
  if (*round_at != round) { *round_at = round; --*n_empty; }
#endif
}
DEVICE bool is_inner(u8 c) { return (c & 0xC0) == 0x80; }

// The code point at p < e, and p behind it; `fine` becomes false where it is not well-formed.
DEVICE u32 decode(const u8* text, i64& p, i64 e, bool& fine) {
  u32 c = text[p];
  if (c < 0x80) { p += 1; return c; }
  int n = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
  if (is_inner((u8)c) || p + n > e) { fine = false; p = e; return 0xFFFD; }
  u32 code = n == 2 ? c & 31 : n == 3 ? c & 15 : c & 7;
  for (int k = 1; k < n; k++) {
    fine = fine && is_inner(text[p + k]);
    code = code << 6 | (text[p + k] & 63);
  }
  p += n;
  fine = fine && !(p < e && is_inner(text[p]));
  return code < 0x10FFFF ? code : 0x10FFFF;
}
DEVICE bool is_space(u32 c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
DEVICE u64 unit(u32 code, const u64* table) { return code < 128 ? table[code] : mix((u64)code + POINT); }

struct Document { const u8* text; i64 n_bytes; int n; u64 power, seed; const u64* table; };

// Calls give(start, hash) for every shingle that begins in [a, b); whether the text there is well-formed.
template <class Give> DEVICE bool walk(const Document& d, i64 a, i64 b, Give give) {
  bool fine = true;
  while (a < b && is_inner(d.text[a])) { if (a == 0) return false; a++; }
  if (a >= b) return true;
  i64 old = a, next = a;
  u64 h = 0;
  int seen = 0;
  while (next < d.n_bytes && seen < d.n) { h = h * BASE + unit(decode(d.text, next, d.n_bytes, fine), d.table); seen++; }
  if (seen < d.n) {  // the document ends first: one shingle if it is all of it, else none
    if (a == 0) give(0, mix(h ^ d.seed));
    return fine;
  }
  while (true) {
    give(old, mix(h ^ d.seed));
    u64 gone = unit(decode(d.text, old, d.n_bytes, fine), d.table);
    if (next >= d.n_bytes || old >= b) break;
    h = h * BASE + (unit(decode(d.text, next, d.n_bytes, fine), d.table) - gone * d.power);
  }
  return fine;
}

// data[starts[i] : ends[i]] are the documents; keys has BANDS for each, n_shingles one.
KERNEL sketches(const u8* data, const i64* starts, const i64* ends, i64 n_documents, int n, u64 power, u64 seed, u64* keys, i64* n_shingles) {
  SHARED u64 table[128], bins[BINS], hashes[CACHED];
  SHARED int rounds[BINS], n_empty, total, malformed, has_word, n_left;
  EACH_THREAD(tid) for (int k = tid; k < 128; k += THREADS) table[k] = mix((u64)k + POINT);
  EACH_DOCUMENT(row, n_documents) {
    Document d = {data + starts[row], ends[row] - starts[row], n, power, seed, table};
    i64 each = (d.n_bytes + THREADS - 1) / THREADS;
    if (each < 16) each = 16;
    bool cached = d.n_bytes <= CACHED;
    SYNC;
    EACH_THREAD(tid) {
      for (int b = tid; b < BINS; b += THREADS) { bins[b] = NONE; rounds[b] = 0; }
      if (cached) for (int k = tid; k < d.n_bytes; k += THREADS) hashes[k] = NONE;
      if (tid == 0) { n_empty = 0; total = 0; malformed = 0; has_word = 0; }
    }
    SYNC;
    EACH_THREAD(tid) {
      i64 a = each * tid, b = a + each < d.n_bytes ? a + each : d.n_bytes;
      int own = 0;
      if (a < b) {
        bool fine = walk(d, a, b, [&](i64 at, u64 h) {
          lower(&bins[bin_of(h)], h);
          if (cached) hashes[at] = h;
          own++;
        });
        count(&total, own);
        if (!fine) malformed = 1;
        bool word = false, ignored = true;
        for (i64 p = a; p < b && !word && !has_word;) {
          if (is_inner(d.text[p])) { p++; continue; }
          word = !is_space(decode(d.text, p, d.n_bytes, ignored));
        }
        if (word) has_word = 1;
      }
    }
    SYNC;
    bool blank = !has_word;
    EACH_THREAD(tid) if (!blank) for (int b = tid; b < BINS; b += THREADS) if (bins[b] == NONE) { rounds[b] = EMPTY; count(&n_empty, 1); }
    SYNC;
    for (int r = 1; r < BINS && !malformed; r++) {
      EACH_THREAD(tid) if (tid == 0) n_left = n_empty;
      SYNC;
      if (n_left == 0) break;
      u64 fresh = salt(seed, (u64)r);
      EACH_THREAD(tid) {
        auto put = [&](u64 shingle) {
          u64 h = mix(shingle + fresh);
          int b = bin_of(h);
          if (rounds[b] >= r) { fill(&rounds[b], r, &n_empty); lower(&bins[b], h); }
        };
        if (cached) { for (int k = tid; k < d.n_bytes; k += THREADS) if (hashes[k] != NONE) put(hashes[k]); }
        else {
          i64 a = each * tid, b = a + each < d.n_bytes ? a + each : d.n_bytes;
          if (a < b) walk(d, a, b, [&](i64, u64 h) { put(h); });
        }
      }
      SYNC;
    }
    SYNC;
    // What is empty after all rounds takes the smallest hash of a round of its own.
    for (int bin = 0; bin < BINS && n_empty > 0 && !malformed; bin++) {
      if (rounds[bin] != EMPTY) continue;
      u64 fresh = salt(seed, (u64)(BINS + bin));
      EACH_THREAD(tid) {
        auto put = [&](u64 shingle) { lower(&bins[bin], mix(shingle + fresh)); };
        if (cached) { for (int k = tid; k < d.n_bytes; k += THREADS) if (hashes[k] != NONE) put(hashes[k]); }
        else {
          i64 a = each * tid, b = a + each < d.n_bytes ? a + each : d.n_bytes;
          if (a < b) walk(d, a, b, [&](i64, u64 h) { put(h); });
        }
      }
    }
    SYNC;
    EACH_THREAD(tid) {
      for (int b = tid; b < BINS; b += THREADS) {
        u64 r = (u64)(rounds[b] == EMPTY ? BINS + b : rounds[b]);
        bins[b] = WIDE ? bins[b] + r * GOLDEN : r << 32 | bins[b] >> 32;
      }
    }
    SYNC;
    EACH_THREAD(tid) {
      for (int band = tid; band < BANDS; band += THREADS) {
        u64 key = mix((u64)band + GOLDEN);
        for (int k = band * ROWS; k < (band + 1) * ROWS; k++) {
          u64 x = key + bins[k] * P2;
          key = (x << 31 | x >> 33) * P1;
        }
        key = mix(key);
        keys[row * BANDS + band] = blank ? 0 : key ? key : 1;
      }
      if (tid == 0) n_shingles[row] = malformed ? -1 : blank ? 0 : total;
    }
  }
}
