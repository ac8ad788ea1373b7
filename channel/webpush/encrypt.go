package webpush

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
)

const (
	saltSize   = 16
	keySize    = 65                         // an uncompressed P-256 point
	headerSize = saltSize + 4 + 1 + keySize // RFC 8188 §2.1
	tagSize    = 16
	recordSize = 4096

	// MaxPayload is how many bytes of plain text fit into the 4096 that every push service takes (RFC 8291 §4).
	MaxPayload = recordSize - headerSize - 1 - tagSize
)

// userAgent is the receiving side of a subscription.
type userAgent struct {
	key  *ecdh.PublicKey
	auth []byte
}

func parseKey(text string) (*ecdh.PublicKey, error) {
	b, err := decode(text)
	if err == nil && len(b) == keySize {
		if k, err := ecdh.P256().NewPublicKey(b); err == nil {
			return k, nil
		}
	}
	return nil, errors.New("is not an uncompressed P-256 point of 65 bytes in base64url")
}

func parseAuth(text string) ([]byte, error) {
	b, err := decode(text)
	if err != nil || len(b) != 16 {
		return nil, errors.New("is not 16 bytes in base64url")
	}
	return b, nil
}

// decode reads base64url, and what clients make of it: the standard alphabet, and padding.
func decode(text string) ([]byte, error) {
	text = strings.TrimRight(text, "=")
	if strings.ContainsAny(text, "+/") {
		return base64.RawStdEncoding.Strict().DecodeString(text)
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}

// encrypt makes the body of a push message (RFC 8291 §3.4). own must be used once only.
func encrypt(ua userAgent, own *ecdh.PrivateKey, salt, plain []byte) ([]byte, error) {
	shared, err := own.ECDH(ua.key)
	if err != nil {
		return nil, err
	}
	public := own.PublicKey().Bytes()
	ikm, err := hkdf.Key(sha256.New, shared, ua.auth, "WebPush: info\x00"+string(ua.key.Bytes())+string(public), 32)
	if err != nil {
		return nil, err
	}
	return record(ikm, salt, public, plain)
}

// record is a body of aes128gcm with a single record and no padding (RFC 8188 §2).
func record(ikm, salt, keyID, plain []byte) ([]byte, error) {
	if len(plain) > recordSize-1-tagSize {
		return nil, errors.New("webpush: the payload does not fit into one record")
	}
	cek, nonce, err := contentKeys(ikm, salt)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(cek)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, saltSize+4+1+len(keyID)+len(plain)+1+tagSize)
	out = append(out, salt...)
	out = binary.BigEndian.AppendUint32(out, recordSize)
	out = append(out, byte(len(keyID)))
	out = append(out, keyID...)
	start := len(out)
	out = append(out, plain...)
	out = append(out, 2) // the delimiter of the last record
	sealed := gcm.Seal(out[start:start], nonce, out[start:], nil)
	return out[:start+len(sealed)], nil
}

// contentKeys is RFC 8188 §2.2 and §2.3, for the first record.
func contentKeys(ikm, salt []byte) (cek, nonce []byte, err error) {
	prk, err := hkdf.Extract(sha256.New, ikm, salt)
	if err != nil {
		return nil, nil, err
	}
	if cek, err = hkdf.Expand(sha256.New, prk, "Content-Encoding: aes128gcm\x00", 16); err != nil {
		return nil, nil, err
	}
	nonce, err = hkdf.Expand(sha256.New, prk, "Content-Encoding: nonce\x00", 12)
	return cek, nonce, err
}
